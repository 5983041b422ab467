-- Checks whether the server accepts the writes of an acquisition. It does not if its memory is full
-- or if it is a replica.
--
-- KEYS  a key that never exists
-- ARGV  none
-- Returns  nil, because nothing is written
local nothing = KEYS[1]
return redis.call('SET', nothing, '', 'XX', 'PX', 1)
