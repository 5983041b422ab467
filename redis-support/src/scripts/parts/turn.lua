-- Those who queue for a mutex hear of the lock itself only as the first two. The others have keys of their own, which are
-- deleted when they have come so far: so a release wakes no crowd.

-- `id`, which had this place, has gone: those who are first or second now, and were not before, are told.
local function move_up(queue, news, id, rank)
  local keys = {news .. '#' .. id}
  if rank < 2 then
    for _, other in ipairs(redis.call('ZRANGE', queue, rank, 1)) do
      keys[#keys + 1] = news .. '#' .. other
    end
  end
  -- Where keys are moved about it may fail, and they look by themselves.
  redis.pcall('DEL', unpack(keys))
end

-- The key is free, and the first in the queue is waited for no longer than it said: for how many ms, if it said so.
local function offer(queue, places, now)
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  local ends, units, time = string.match(first and redis.call('HGET', places, first) or '', '^(%d+) (%d+) (%d+)$')
  if time and now + time < tonumber(ends) then
    redis.pcall('HSET', places, first, digits(now + time) .. ' ' .. units .. ' ' .. time)
    return tonumber(time)
  end
end
