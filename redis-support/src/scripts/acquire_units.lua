-- KEYS: lock, fence, held, queue, revoke, places, news, units, the news that are for this claim alone, and crowd.
-- ARGV: id, TTL in ms, units, limit, description, how long to keep a place in the queue, in ms (0: no place), and how long to keep free
-- units for it, in ms (0: until its place ends).
-- Granted: {1, token, 0, and the ids of those that were called up}. Refused: see `wait_turn`.
local id, wants, limit, place = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[6])
if redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('WRONGTYPE it is held as a mutex')
end
local mine = redis.call('ZSCORE', KEYS[3], id)
if mine and tonumber(mine) <= now then
  end_leases(KEYS[3], KEYS[8], {id})
  mine = false
end
local used = in_use(KEYS[3], KEYS[8], now)

if not mine then
  local room = limit - used - wants
  local rank = place > 0 and place_of(KEYS[4], KEYS[6], id, now)
  local wanted, first, _, cleared = wanted_before(KEYS[4], KEYS[6], rank, room, now)
  local called, soonest = {}, nil
  if cleared > 0 then
    called = call_up(KEYS[4], KEYS[6], KEYS[7], used, 1, now)
  elseif wanted > 0 and room >= 0 then
    called, soonest = call_up(KEYS[4], KEYS[6], KEYS[7], used, 0, now)
    first = math.min(first, soonest or first)
  end
  if wanted > room then
    local claim = { id = id, place = place, patience = tonumber(ARGV[7]), news = KEYS[9], crowd = KEYS[10], hears_of_lock = false }
    claim.terms = table.concat({ARGV[3], ARGV[4], ARGV[7]}, ' ')
    rank = rank and rank - cleared
    local holder = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
    if not holder[1] then
      return wait_turn(claim, rank, micros, {0, first or -1, -1, false, false}, called)
    end
    local left = math.max(tonumber(holder[2]) - now, 0)
    local known = redis.call('HGET', KEYS[8], holder[1])
    return wait_turn(claim, rank, micros, {0, math.min(left, first or left), left, holder[1], known}, called)
  end
end

local token, failure = number_grant(KEYS[2], micros, 0)
if not token then
  return failure
end
mark(KEYS[10], KEYS[1], now + ARGV[2], now)
redis.call('ZADD', KEYS[3], digits(now + ARGV[2]), id)
local called = {}
local units = mine and string.match(redis.call('HGET', KEYS[8], id) or '', '^%d+') or ARGV[3]
redis.call('HSET', KEYS[8], id, record(units, '/' .. ARGV[4] .. '/' .. digits(token), ARGV[5]))
if not mine then
  redis.call('HINCRBY', KEYS[8], 'used', ARGV[3])
  if used == 0 then
    -- Observers learn of the new holder, and a new holder has no request to revoke.
    redis.call('DEL', KEYS[7], KEYS[5])
  end
  if place > 0 and forget(KEYS[4], KEYS[6], {id}) then
    tell(KEYS[7], {id})
    called = call_up(KEYS[4], KEYS[6], KEYS[7], used + wants, 1, now)
  end
end
keep(KEYS[3], KEYS[8], now)
-- Read after the write, so that the server tells this connection when it is asked for back.
redis.call('GET', KEYS[5])
return {1, token, 0, unpack(called)}
