-- KEYS: lock, fence. ARGV: value, TTL in ms.
-- Granted: {1, token}. Held by another: {0, remaining TTL in ms (negative: for ever), its value}.
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then
  return {0, redis.call('PTTL', KEYS[1]), string.sub(held, 1, 512)}
end

-- The larger of the last token + 1 and the server's clock in microseconds: tokens stay in order
-- after a restart, a flush or a failover that lost the counter.
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if not last then
  return redis.error_reply('WRONGTYPE the fence of this key is not a number')
end
local time = redis.call('TIME')
local token = math.max(last + 1, time[1] * 1000000 + time[2])
-- From 2^53 on, adding one changes nothing.
if token >= 9007199254740992 then
  return redis.error_reply('ERR no fencing token is left')
end

-- The token first: an error half-way never leaves a lock without one.
redis.call('SET', KEYS[2], string.format('%.0f', token))
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
-- Read after the write, so that the server tells this connection when anybody changes the key.
redis.call('GET', KEYS[1])
return {1, string.format('%.0f', token)}
