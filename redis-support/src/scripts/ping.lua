-- Finds out whether the server accepts the writes of an acquisition: not if its memory is full, and not on a replica.
--
-- KEYS  a key that nothing is ever stored under
-- ARGV  none
-- Returns  nothing: nothing is written
local nothing = KEYS[1]
return redis.call('SET', nothing, '', 'XX', 'PX', 1)
