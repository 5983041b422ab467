--- @include "queue"
-- Clients that take a key by `SET NX` do not see the queue, and a key that is passed on within the queue is never free. So once in so
-- many ms a release leaves it to them: they get a place before all others for a moment, which ends like that of a dead claim.
local EVERY = 1000
local MOMENT = 10
local OTHERS = '*'

-- Whether the key is to be left to others now. While any claim waits, their place, with this record, tells when that is due, and then when it
-- ends.
-- Needs no command that fails when memory is full.
local function give_way(queue, places, record, now)
  local due = read_place(record)
  if due == 0 then
    redis.pcall('HSET', places, OTHERS, write_place(now + EVERY, 1, 1, 0))
  end
  if due == 0 or now < due then
    return false
  end
  redis.pcall('ZADD', queue, 0, OTHERS)
  redis.pcall('HSET', places, OTHERS, write_place(now + MOMENT, 1, 1, 0))
  return true
end
