-- KEYS: lock, fence, held, queue, revoke, places, news, units.
-- ARGV: id, TTL in ms, units, limit, who it is, for how many ms a place in the queue is wanted (0: not at all).
-- Granted: {1, token}. Refused: {0, ms until what is in the way ends by itself (negative: unknown),
-- remaining TTL in ms, id of one who holds it or nil, what is known of it}.
local id, wanted, place = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[6])
if redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('WRONGTYPE it is held as a mutex')
end
local micros = clock()
local now = math.floor(micros / 1000)
local mine = redis.call('ZSCORE', KEYS[3], id)
if mine and tonumber(mine) <= now then
  end_leases(KEYS[3], KEYS[8], {id})
  mine = false
end
local used = in_use(KEYS[3], KEYS[8], now)

if not mine then
  local rank = place > 0 and place_of(KEYS[4], KEYS[6], id, now)
  local before, first = wanted_before(KEYS[4], KEYS[6], rank, now)
  if used + before + wanted > tonumber(ARGV[4]) then
    if place > 0 then
      queue_up(KEYS[4], KEYS[6], id, rank, ARGV[3], place, micros)
    end
    await_news(KEYS[7])
    local holder = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
    if not holder[1] then
      return {0, first or -1, -1, false, false}
    end
    local left = math.max(tonumber(holder[2]) - now, 0)
    return {0, math.min(left, first or left), left, holder[1], redis.call('HGET', KEYS[8], holder[1])}
  end
end

local token, failure = number_grant(KEYS[2], micros, 0)
if not token then
  return failure
end
redis.call('ZADD', KEYS[3], digits(now + ARGV[2]), id)
if not mine then
  redis.call('HSET', KEYS[8], id, ARGV[3] .. ' ' .. ARGV[5])
  redis.call('HINCRBY', KEYS[8], 'used', ARGV[3])
  if used == 0 then
    -- Those who observe hear of who holds it now, and nobody has asked for it back yet.
    redis.call('DEL', KEYS[7], KEYS[5])
  end
end
if place > 0 then
  redis.call('ZREM', KEYS[4], id)
  redis.call('HDEL', KEYS[6], id)
end
keep(KEYS[3], KEYS[8], now)
-- Read after the write, so that the server tells this connection when it is asked for back.
redis.call('GET', KEYS[5])
return {1, token}
