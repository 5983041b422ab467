-- Renews a mutex, and raises the minimum of later tokens of a quorum member.
--
-- KEYS  lock, revoke, fence
-- ARGV  value, TTL in ms, number that later tokens exceed, key of the member's minimum token
-- Returns  as in `renew`
local lock, revoke, fence = unpack(KEYS)
local value, ttl, least, floor = unpack(ARGV)
--- @include "member"
--- @include "renew_mutex"
if redis.call('GET', lock) == value then
  if not raise(fence, least) then
    return redis.error_reply('WRONGTYPE the fence of this key is not a number')
  end
  if redis.call('GETEX', floor) then
    raise(floor, least)
  end
end
return renew_mutex(lock, revoke, value, ttl)
