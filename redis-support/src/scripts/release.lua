-- KEYS: lock, and, if they are at hand: queue, places, news, fence. ARGV: value, id.
-- 1: released. 0: this lock does not lie under the key, and its place in the queue is given up.
-- Needs no command that fails when memory is full.
if is_held then
  local micros = clock()
  if not (KEYS[2] and hand_over(KEYS, front, micros)) then
    redis.call('DEL', KEYS[1])
    if KEYS[2] then
      reserve(KEYS[2], KEYS[3], math.floor(micros / 1000))
      -- In case the first is dead.
      tell(KEYS[4], {front[2]})
    end
  end
  return 1
end
if not KEYS[2] then
  return redis.error_reply('TRYAGAIN its place in the queue is not at hand')
end
local rank = redis.call('ZRANK', KEYS[2], ARGV[2])
if rank then
  redis.call('ZREM', KEYS[2], ARGV[2])
  redis.call('HDEL', KEYS[3], ARGV[2])
  -- If who is first now has been told before, it has no such key any more.
  tell(KEYS[4], {ARGV[2], redis.call('ZRANGE', KEYS[2], 0, 0)[1]})
end
return 0
