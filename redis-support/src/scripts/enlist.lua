-- Makes the server a member of a quorum.
--
-- KEYS  member
-- ARGV  as in `standing`, identity that the member must have, quorum configuration, number that all
--       later tokens with this configuration exceed
-- Returns  as in `stand`
local member = KEYS[1]
local floor, fresh, process, is_durable, identity, charter, least = unpack(ARGV)
--- @include "stand"
local standing = stand(member, floor, fresh, process, is_durable)
local known, enlisted = standing[1], standing[2]
if known == identity and (not enlisted or enlisted == charter) then
  raise(floor, least)
  redis.call('HSET', member, 'charter', charter)
  standing[2], standing[3] = charter, redis.call('GETEX', floor)
end
return standing
