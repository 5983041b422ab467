-- KEYS: lock, fence, held, units, news.
-- {last token or nil, value of a mutex or nil, its remaining TTL in ms (negative: for ever)}, or
-- {last token or nil, units in use, id, remaining TTL in ms, what is known of it, …} for those that end first.
local value = redis.call('GET', KEYS[1])
local token = redis.call('GET', KEYS[2])
local now = math.floor(clock() / 1000)
if value or not last_end(KEYS[3], now) then
  -- Who observes waits for news.
  if not value then
    await_news(KEYS[5])
  end
  return {token, value and string.sub(value, 1, 512), redis.call('PTTL', KEYS[1])}
end
await_news(KEYS[5])
local reply = {token, in_use(KEYS[3], KEYS[4], now)}
return list(KEYS[3], KEYS[4], now, reply)
