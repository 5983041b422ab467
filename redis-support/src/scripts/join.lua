-- Makes the server a member of a quorum.
--
-- KEYS  member
-- ARGV  as in `status`, identity that the member must have, quorum configuration, number that all
--       later tokens with this configuration exceed
-- Returns  as in `member_status`
local member = KEYS[1]
local floor, fresh, process, is_durable, identity, charter, least = unpack(ARGV)
--- @include "member_status"
local status = member_status(member, floor, fresh, process, is_durable)
local known, joined = status[1], status[2]
if known == identity and (not joined or joined == charter) then
  raise(floor, least)
  redis.call('HSET', member, 'charter', charter)
  status[2], status[3] = charter, redis.call('GETEX', floor)
end
return status
