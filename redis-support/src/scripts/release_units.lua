-- KEYS: held, units, and, if they are at hand: queue, places, news. ARGV: id.
-- 1: released. 0: this lease is not in force, and its place in the queue is given up. The ids of those that were called up may follow.
local id = ARGV[1]
local has_left = KEYS[3] and forget(KEYS[3], KEYS[4], {id})
if has_left then
  tell(KEYS[5], {id})
end
local ends = redis.call('ZSCORE', KEYS[1], id)
if not ends and not KEYS[3] then
  return redis.error_reply('TRYAGAIN its place in the queue is not at hand')
end
if not ends and not has_left then
  return 0
end
local now = math.floor(clock() / 1000)
if not ends then
  local used = tonumber(redis.call('HGET', KEYS[2], 'used') or 0)
  return with_called(0, (call_up(KEYS[3], KEYS[4], KEYS[5], used, 1, now)))
end
-- Counted first: with its last member the key goes, and while its slot moves away the server ends a script that names a missing key.
local is_last = redis.call('ZCARD', KEYS[1]) == 1
-- This write is allowed when memory is full. After it, the others are too: the server ends no script half-way.
redis.call('ZREM', KEYS[1], id)
local units = string.match(redis.call('HGET', KEYS[2], id) or '', '^%d+')
local used = 0
if is_last then
  redis.call('DEL', KEYS[2])
elseif units then
  redis.call('HDEL', KEYS[2], id)
  used = redis.call('HINCRBY', KEYS[2], 'used', '-' .. units)
end
local called = {}
if KEYS[5] then
  redis.call('DEL', KEYS[5])
  called = call_up(KEYS[3], KEYS[4], KEYS[5], used, 1, now)
end
return with_called(tonumber(ends) > now and 1 or 0, called)
