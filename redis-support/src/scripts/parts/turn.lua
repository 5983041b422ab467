-- Who queues for a mutex has a key of its own, which is deleted when it is first: only then does it hear of the lock itself. So a
-- release wakes no crowd.

-- Tells the one who has the place `rank` now, and deletes the key of `gone` as well, if there is one.
local function tell(queue, news, rank, gone)
  local keys = gone and {news .. '#' .. gone} or {}
  local id = redis.call('ZRANGE', queue, rank, rank)[1]
  if id then
    keys[#keys + 1] = news .. '#' .. id
  end
  if keys[1] then
    -- Where keys are moved about it may fail, and it looks by itself.
    redis.pcall('DEL', unpack(keys))
  end
end

-- The key is free, and the first in the queue is waited for no longer than it said: for how many ms, if it said so.
local function offer(queue, places, now)
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  local known = first and redis.call('HGET', places, first) or ''
  local ends, rest, time = string.match(known, '^(%d+)( %d+ (%d+).*)$')
  if time and now + time < tonumber(ends) then
    redis.pcall('HSET', places, first, digits(now + time) .. rest)
    return tonumber(time)
  end
end
