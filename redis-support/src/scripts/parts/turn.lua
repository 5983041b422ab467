--- @include "queue"
-- A queued claim has a separate key, which is deleted when the claim must try again. A release
-- therefore does not wake all waiters.

-- How many entries are woken at the same time. A release wakes the first of them, and each served
-- claim wakes more.
local WINDOW = 8

-- Deletes the keys of these claims.
local function tell(news, ids)
  local keys = {}
  for n, id in ipairs(ids) do
    keys[n] = news .. '#' .. id
  end
  if keys[1] then
    -- This may fail while keys move between servers. The claims then poll.
    redis.pcall('DEL', unpack(keys))
  end
end

-- Wakes the queued claims that fit next to `used` permits, and `more` claims behind them, which try
-- when an entry ahead of them expires. The patience of a woken claim starts now. Returns their ids,
-- because the server does not notify a connection of its own changes, and the ms until the first of
-- them loses its turn. `ids` and `records` are the front of the queue, if it was read. Uses only
-- commands that work when the memory is full.
local function call_up(queue, places, news, used, more, now, ids, records)
  ids = ids or redis.call('ZRANGE', queue, 0, WINDOW - 1)
  local called, soonest = {}, nil
  records = records or ids[1] and redis.call('HMGET', places, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local place = {read_place(records[i])}
    local ends, units, limit, patience = unpack(place)
    used = used + (units or math.huge)
    if used > (limit or 0) then
      if more == 0 then
        break
      end
      more = more - 1
    elseif patience > 0 and now + patience < ends then
      ends = now + patience
      place[1] = ends
      redis.pcall('HSET', places, id, write_place(unpack(place)))
    end
    called[#called + 1] = id
    soonest = math.min(soonest or ends, ends)
  end
  tell(news, called)
  return called, soonest and soonest - now
end

-- Returns the reply to an operation that may have woken claims.
local function with_called(reply, called)
  return called[1] and {reply, unpack(called)} or reply
end
