--- @include "turn"
--- @include "give_way"

-- The first in the queue, and the next, which looks when the place of the first ends.
local function front(queue)
  return redis.call('ZRANGE', queue, 0, 1)
end

-- Keeps the key for the first in the queue that hears of it over its connection, as its holder, for as long as a free key is kept for it:
-- meanwhile it asks, and has its whole TTL. A claim that nothing listens for is passed by, and its place is given up. False if the first
-- does not hear of such things, or the key is left to others: then the first is told that it is free.
--
-- ids     the front of the queue
-- Returns  whether it is kept, and then the next claim and the record of its place, each as a list
-- Needs no command that fails when memory is full.
local function hand_over(lock, queue, places, ids, now)
  for _ = 1, 128 do
    local first = ids[1]
    if not first then
      return false
    end
    local records = redis.call('HMGET', places, OTHERS, unpack(ids))
    local ends, _, _, patience, channel, value = read_place(records[2])
    if ends > now then
      if not channel or channel == '-' or give_way(queue, places, records[1], now) then
        return false
      end
      local kept = redis.pcall('SET', lock, value, 'PX', digits(math.min(patience, ends - now)))
      if type(kept) == 'table' and kept.err then
        return false
      end
      local told = redis.pcall('PUBLISH', channel, first)
      if type(told) ~= 'number' then
        -- It may not be told.
        return false
      end
      forget(queue, places, {first}, ids[2])
      if told > 0 then
        return true, {ids[2]}, {records[3]}
      end
    else
      forget(queue, places, {first}, ids[2])
    end
    ids = front(queue)
  end
  return false
end
