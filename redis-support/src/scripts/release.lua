-- KEYS: lock, and, if they are at hand: queue, places, news. ARGV: value, id.
-- 1: released. 0: this lock does not lie under the key, and its place in the queue is given up. The ids of those that were called up
-- may follow.
-- Needs no command that fails when memory is full.
if is_held and not KEYS[2] then
  return redis.call('DEL', KEYS[1])
end
local now = math.floor(clock() / 1000)
if is_held then
  if hand_over(KEYS, now) then
    return with_called(1, (call_up(KEYS[2], KEYS[3], KEYS[4], 1, 1, now)))
  end
  redis.call('DEL', KEYS[1])
  return with_called(1, (call_up(KEYS[2], KEYS[3], KEYS[4], 0, 1, now)))
end
if not KEYS[2] then
  return redis.error_reply('TRYAGAIN its place in the queue is not at hand')
end
if not forget(KEYS[2], KEYS[3], {ARGV[2]}) then
  return 0
end
tell(KEYS[4], {ARGV[2]})
return with_called(0, (call_up(KEYS[2], KEYS[3], KEYS[4], redis.call('EXISTS', KEYS[1]), 1, now)))
