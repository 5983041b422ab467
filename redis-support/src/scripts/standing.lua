-- Tells how the server stands as a member of a quorum.
--
-- KEYS  member
-- ARGV  key of its floor, an identity for a member that has none, id of the process that was asked for its settings, whether that has all
--       that it answers on disk (1 or 0)
-- Returns  see `stand`
local member = KEYS[1]
local floor, fresh, process, is_durable = unpack(ARGV)
--- @include "stand"
return stand(member, floor, fresh, process, is_durable)
