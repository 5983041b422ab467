-- Returns the membership status of the server.
--
-- KEYS  member
-- ARGV  key of the minimum token, identity for a member without one, id of the process that
--       reported its settings, whether this process writes data to the disk before it replies (1 or
--       0)
-- Returns  as in `member_status`
local member = KEYS[1]
local floor, fresh, process, is_durable = unpack(ARGV)
--- @include "member_status"
return member_status(member, floor, fresh, process, is_durable)
