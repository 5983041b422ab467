-- KEYS: lock, fence, held, units, news, queue, places.
-- {holders, the clock in µs, number of waiters, id, its place, …} for the first waiters. The holders: {last token or nil, value of a
-- mutex or nil, its remaining TTL in ms (negative: for ever)}, or {last token or nil, units in use, id, remaining TTL in ms, its
-- record, …} for the leases that end first.
local value = redis.call('GET', KEYS[1])
local token = redis.call('GET', KEYS[2])
local micros = clock()
local now = math.floor(micros / 1000)
local reply = {false, digits(micros), redis.call('ZCARD', KEYS[6])}
local waiting = redis.call('ZRANGE', KEYS[6], 0, 127)
if waiting[1] then
  for i, place in ipairs(redis.call('HMGET', KEYS[7], unpack(waiting))) do
    reply[#reply + 1] = waiting[i]
    reply[#reply + 1] = place or ''
  end
end
if value or not last_end(KEYS[3], now) then
  -- Observers wait for news.
  if not value then
    await_news(KEYS[5])
  end
  reply[1] = {token, value and string.sub(value, 1, 512), redis.call('PTTL', KEYS[1])}
  return reply
end
await_news(KEYS[5])
reply[1] = list(KEYS[3], KEYS[4], now, {token, in_use(KEYS[3], KEYS[4], now)})
return reply
