--- @include "queue"
-- Clients that acquire a key with `SET NX` do not see the queue, and a key that is handed off
-- within the queue is never free. At this interval in ms, a release therefore leaves the key to
-- these clients. They get a queue entry ahead of all others for a moment, which expires like the
-- entry of a dead claim.
local EVERY = 1000
local MOMENT = 10
local OTHERS = '*'

-- Returns whether the key must be left to other clients now. As long as any claim waits, `record`
-- is the queue entry of these clients. It contains when this is due, and then when it ends. Uses
-- only commands that work when the memory is full.
local function yield_to_foreign_client(queue, places, record, now)
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
