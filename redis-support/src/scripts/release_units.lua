-- KEYS: held, queue, places, news, units. ARGV: id.
-- 1: released. 0: this lease is not in force, and its place in the queue is given up.
local id = ARGV[1]
leave(KEYS[2], KEYS[3], KEYS[4], id)
local ends = redis.call('ZSCORE', KEYS[1], id)
if not ends then
  return 0
end
-- This write is allowed when memory is full. After it, the others are too: the server ends no script half-way.
redis.call('ZREM', KEYS[1], id)
local units = string.match(redis.call('HGET', KEYS[5], id) or '', '^%d+')
if redis.call('ZCARD', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[5])
elseif units then
  redis.call('HDEL', KEYS[5], id)
  redis.call('HINCRBY', KEYS[5], 'used', '-' .. units)
end
redis.call('DEL', KEYS[4])
return tonumber(ends) > math.floor(clock() / 1000) and 1 or 0
