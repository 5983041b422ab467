-- KEYS: lock, and, if they are at hand: queue, places, news, fence. ARGV: value, id.
-- 1: released. 0: this lock does not lie under the key, and its place in the queue is given up.
-- Needs no command that fails when memory is full.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  local micros = clock()
  local queues = KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1
  if not (queues and hand_over(KEYS, micros)) then
    redis.call('DEL', KEYS[1])
    if queues then
      offer(KEYS[2], KEYS[3], math.floor(micros / 1000))
      -- In case the first is dead.
      tell(KEYS[2], KEYS[4], 1)
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
  move_up(KEYS[2], KEYS[4], ARGV[2], rank)
end
return 0
