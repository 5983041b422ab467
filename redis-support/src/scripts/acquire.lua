-- Acquires a mutex, or refuses the claim and keeps a place for it.
--
-- KEYS  lock, fence, held, queue, revoke, places, news, own news: those for this claim alone, crowd
-- ARGV  value, TTL in ms, number of spare tokens, id, ms for which a place in the queue is kept (0: none), patience: ms for which a free
--       key is kept for the claim (0: until its place ends), channel to which its client listens (`-`: none)
-- Returns  granted: {1, token, number of spare tokens, ids of the claims that were called up, …}; refused: see `refuse`
local lock, fence, held, queue, revoke, places, news, own_news, crowd = unpack(KEYS)
local value, ttl, spare, id, place, patience, channel = unpack(ARGV)

--- @include "token"
--- @include "grant_free"
-- The common cases are decided before anything else is set up, which takes longer than they do.
local micros = clock()
spare = tonumber(spare)
local others = redis.call('EXISTS', held, queue, revoke) > 0
local granted = not others and grant_free(lock, crowd, value, ttl, number_grant, fence, micros, spare)
if granted then
  return granted
end

--- @include "far_place"
-- One is served at a time, so few need to look after the front.
local NEAR = 16
place, patience = tonumber(place), tonumber(patience)
local claim = {
  id = id, place = place, patience = patience, hears_of_lock = true,
  terms = {1, 1, patience, patience > 0 and channel or '-', value},
  lock = lock, queue = queue, places = places, own_news = own_news, crowd = crowd, micros = micros,
}
local rank = others and place > 0 and redis.call('ZRANK', queue, id)
local refused = rank and rank > NEAR and keep_far_place(claim, rank)
if refused then
  return refused
end

--- @include "acquire_in_turn"
return acquire_in_turn(claim, held, revoke, news, value, ttl, others, number_grant, fence, micros, spare)
