-- Acquires a mutex, or refuses the claim and creates a queue entry for it.
--
-- KEYS  lock, fence, held, queue, revoke, places, news, own news (for this claim only),
--       contended
-- ARGV  value, TTL in ms, number of spare tokens, id, lifetime of the queue entry in ms (0: no
--       queue entry), patience: how long a free key is reserved for the claim in ms (0: until its
--       queue entry expires), channel on which its client listens to reservations (`-`: none)
-- Returns  granted: {1, token, number of spare tokens, ids of the woken claims, …}; refused: see
--          `refuse`
local lock, fence, held, queue, revoke, places, news, own_news, contended = unpack(KEYS)
local value, ttl, spare, id, place, patience, channel = unpack(ARGV)

--- @include "token"
--- @include "grant_free"
-- The common cases are decided first, because preparing the remaining cases takes longer than
-- deciding these.
local micros = clock()
spare = tonumber(spare)
local others = redis.call('EXISTS', held, queue, revoke) > 0
local granted = not others and grant_free(lock, contended, value, ttl, number_grant, fence, micros, spare)
if granted then
  return granted
end

--- @include "back_of_queue"
-- Only one claim is served at a time, so only a few claims need to watch the front of the queue.
local NEAR = 16
place, patience = tonumber(place), tonumber(patience)
local claim = {
  id = id, place = place, patience = patience, hears_of_lock = true,
  terms = {1, 1, patience, patience > 0 and channel or '-', value},
  lock = lock, queue = queue, places = places, own_news = own_news, contended = contended, micros = micros,
}
local rank = others and place > 0 and redis.call('ZRANK', queue, id)
local refused = rank and rank > NEAR and keep_back_of_queue(claim, rank)
if refused then
  return refused
end

--- @include "acquire_in_turn"
return acquire_in_turn(claim, held, revoke, news, value, ttl, others, number_grant, fence, micros, spare)
