-- KEYS: lock, and, if they are at hand: queue, places, news. ARGV: value, id.
-- 1: released. 0: this lock does not lie under the key, and its place in the queue is given up.
-- Uses no command that fails when memory is full.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
if not KEYS[2] then
  return redis.error_reply('TRYAGAIN its place in the queue is not at hand')
end
leave(KEYS[2], KEYS[3], KEYS[4], ARGV[2])
return 0
