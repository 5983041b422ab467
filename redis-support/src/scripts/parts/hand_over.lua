--- @include "queue"
--- @include "give_way"

-- Keeps the key for the first in the queue that hears of it over its connection, as its holder, for as long as a free key is kept for it:
-- meanwhile it asks, and has its whole TTL. A claim that nothing listens for is passed by, and its place is given up. False if the first
-- does not hear of such things, or the key is left to others: then the first is told that it is free.
-- Needs no command that fails when memory is full.
local function hand_over(lock, queue, places, now)
  for _ = 1, 128 do
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    if not first then
      return false
    end
    local ends, _, _, patience, channel, value = read_place(redis.call('HGET', places, first))
    if ends > now then
      if not channel or channel == '-' or give_way(queue, places, now) then
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
      forget(queue, places, {first})
      if told > 0 then
        return true
      end
    else
      forget(queue, places, {first})
    end
  end
  return false
end
