-- KEYS: lock, fence, held, queue, places, news, revoke.
-- ARGV: value, TTL in ms, id, for how many ms a place in the queue is wanted (0: not at all).
-- Granted: {1, token}. Refused: {0, ms until what is in the way ends by itself (negative: unknown),
-- remaining TTL in ms (negative: for ever), value of who holds it or nil}.
local value, id, place = ARGV[1], ARGV[3], tonumber(ARGV[4])
local held = redis.call('GET', KEYS[1])
local micros = clock()
local now = math.floor(micros / 1000)
local refusal = nil

if held and held ~= value then
  local left = redis.call('PTTL', KEYS[1])
  refusal = {0, left, left, string.sub(held, 1, 512)}
elseif not held and redis.call('EXISTS', KEYS[3], KEYS[4]) > 0 then
  if last_end(KEYS[3], now) then
    return redis.error_reply('WRONGTYPE it is held in units, as a semaphore or by readers and writers')
  end
  local wanted, first = wanted_before(KEYS[4], KEYS[5], id, now)
  if wanted > 0 then
    refusal = {0, first or -1, -1, false}
  end
end

if refusal then
  if place > 0 then
    queue_up(KEYS[4], KEYS[5], id, 1, place, micros)
  end
  if place > 0 or not held then
    await_news(KEYS[6])
  end
  return refusal
end

local token, failure = number_grant(KEYS[2], micros)
if failure then
  return failure
end
redis.call('SET', KEYS[1], value, 'PX', ARGV[2])
if not held then
  -- Nobody has asked for it back yet.
  redis.call('DEL', KEYS[7])
end
if place > 0 then
  redis.call('ZREM', KEYS[4], id)
  redis.call('HDEL', KEYS[5], id)
end
-- Read after the write, so that the server tells this connection when anybody changes the key.
redis.call('GET', KEYS[1])
return {1, token}
