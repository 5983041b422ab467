-- Acquires a mutex on a member of a quorum, with a quorum configuration.
--
-- KEYS  as in `acquire`, member
-- ARGV  as in `acquire` up to the channel, quorum configuration, requested minimum token, the key
--       of the minimum token. The last key is not declared, because Redis 7.0 would notify this
--       client of each grant on the server
-- Returns  as in `acquire`, or an error if the server has no vote
local lock, fence, held, queue, revoke, places, news, own_news, contended, member = unpack(KEYS)
local value, ttl, spare, id, place, patience, channel, charter, requested, floor = unpack(ARGV)
place, patience = tonumber(place), tonumber(patience)

--- @include "token"
--- @include "member"
--- @include "vote"
if not has_vote(member, charter) then
  return redis.error_reply(NO_MEMBER)
end

--- @include "grant_free"
--- @include "acquire_in_turn"
local micros = clock()
spare, requested = tonumber(spare), tonumber(requested)
local others = redis.call('EXISTS', held, queue, revoke) > 0
local granted = not others and grant_free(lock, contended, value, ttl, number_for_vote, fence, floor, micros, spare, requested)
if granted then
  return granted
end
local claim = {
  id = id, place = place, patience = patience, terms = {1, 1, patience, patience > 0 and channel or '-', value}, hears_of_lock = true,
  lock = lock, queue = queue, places = places, own_news = own_news, contended = contended, micros = micros,
}
return acquire_in_turn(claim, held, revoke, news, value, ttl, others, number_for_vote, fence, floor, micros, spare, requested)
