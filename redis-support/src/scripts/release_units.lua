-- KEYS: held, units, and, if they are at hand: queue, places, news. ARGV: id.
-- 1: released. 0: this lease is not in force, and its place in the queue is given up.
local id = ARGV[1]
if KEYS[3] then
  leave(KEYS[3], KEYS[4], KEYS[5], id)
end
local ends = redis.call('ZSCORE', KEYS[1], id)
if not ends then
  return KEYS[3] and 0 or redis.error_reply('TRYAGAIN its place in the queue is not at hand')
end
-- Counted first: with its last member the key goes, and while its slot moves away the server ends a script that names what is not there.
local is_last = redis.call('ZCARD', KEYS[1]) == 1
-- This write is allowed when memory is full. After it, the others are too: the server ends no script half-way.
redis.call('ZREM', KEYS[1], id)
local units = string.match(redis.call('HGET', KEYS[2], id) or '', '^%d+')
if is_last then
  redis.call('DEL', KEYS[2])
elseif units then
  redis.call('HDEL', KEYS[2], id)
  redis.call('HINCRBY', KEYS[2], 'used', '-' .. units)
end
if KEYS[5] then
  redis.call('DEL', KEYS[5])
end
return tonumber(ends) > math.floor(clock() / 1000) and 1 or 0
