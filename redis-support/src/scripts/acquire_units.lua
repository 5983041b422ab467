-- Acquires permits of a lock, or refuses the claim and creates a queue entry for it.
--
-- KEYS  lock, fence, held, queue, revoke, places, news, units, own news (the keys for this claim
--       only), contended
-- ARGV  id, TTL in ms, number of permits, limit, description, lifetime of the queue entry in ms (0:
--       no queue entry), patience: how long free permits are reserved for the claim in ms (0: until
--       its queue entry expires)
-- Returns  granted: {1, token, 0, ids of the woken claims, …}; refused: see `refuse`
local lock, fence, held, queue, revoke, places, news, units, own_news, contended = unpack(KEYS)
local id, ttl, wants, limit, description, place, patience = unpack(ARGV)
wants, limit, place, patience = tonumber(wants), tonumber(limit), tonumber(place), tonumber(patience)

--- @include "time"
--- @include "back_of_queue"
-- At most this many claims may be served at the same time.
local NEAR = 128
-- The common cases are decided first, because preparing the remaining cases takes longer than
-- deciding these.
local micros = clock()
local now = math.floor(micros / 1000)
local is_queued = redis.call('EXISTS', queue) == 1
local claim = {
  id = id, place = place, patience = patience, terms = {wants, limit, patience}, hears_of_lock = false,
  lock = lock, queue = queue, places = places, own_news = own_news, contended = contended, micros = micros,
}
local rank = is_queued and place > 0 and redis.call('ZRANK', queue, id)
local refused = rank and rank > NEAR and keep_back_of_queue(claim, rank)
if refused then
  return refused
end

--- @include "token"
--- @include "contended"
--- @include "units"
if redis.call('EXISTS', lock) == 1 then
  return redis.error_reply('WRONGTYPE the key is in use as a mutex')
end
local own_end = redis.call('ZSCORE', held, id)
if own_end and tonumber(own_end) <= now then
  end_leases(held, units, {id})
  own_end = false
end
local used = in_use(held, units, now)

-- Grants the claim. Returns the reply, or an error.
local function grant()
  local token, failure = number_grant(fence, micros, 0)
  if not token then
    return failure
  end
  mark(contended, lock, now + ttl, now)
  redis.call('ZADD', held, digits(now + ttl), id)
  local has = own_end and units_of(redis.call('HGET', units, id)) or wants
  redis.call('HSET', units, id, write_lease(has, limit, token, description))
  if not own_end then
    redis.call('HINCRBY', units, 'used', wants)
  end
  if not own_end and used == 0 then
    -- Observers are notified of the new holder. A revocation request does not apply to a new
    -- holder.
    redis.call('DEL', news, revoke)
  end
  keep(held, units, now)
  -- Read after the write, so that the server notifies this connection of a revocation request.
  redis.call('GET', revoke)
  return {1, token, 0}
end

local room = limit - used - wants
if own_end or not is_queued and room >= 0 then
  return grant()
end

--- @include "refuse"
--- @include "turn"
local rank = place > 0 and place_of(queue, places, id, now)
local wanted, first, _, cleared = wanted_before(queue, places, rank, room, now)
local called, soonest = {}, nil
if cleared > 0 then
  called = call_up(queue, places, news, used, 1, now)
elseif wanted > 0 and room >= 0 then
  called, soonest = call_up(queue, places, news, used, 0, now)
  first = math.min(first, soonest or first)
end
if wanted > room then
  claim.rank = rank and rank - cleared
  local holder = redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')
  if not holder[1] then
    return refuse(claim, {after = first or -1, left = -1}, called)
  end
  local left = math.max(tonumber(holder[2]) - now, 0)
  local record = redis.call('HGET', units, holder[1])
  record = record and {cmsgpack.unpack(record)}
  return refuse(claim, {after = math.min(left, first or left), left = left, holder = holder[1], record = record}, called)
end

local reply = grant()
if reply.err or place == 0 or not forget(queue, places, {id}) then
  return reply
end
tell(news, {id})
for _, other in ipairs((call_up(queue, places, news, used + wants, 1, now))) do
  reply[#reply + 1] = other
end
return reply
