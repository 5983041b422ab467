--- @include "queue"
-- A claim in the queue has a key of its own, which is deleted when the claim is to look again: so a release wakes no crowd.

-- Places that are called up at once: a release calls the first of them, and each claim that is served calls further ones.
local WINDOW = 8

-- Deletes the keys of these claims.
local function tell(news, ids)
  local keys = {}
  for n, id in ipairs(ids) do
    keys[n] = news .. '#' .. id
  end
  if keys[1] then
    -- Where keys are moved about it may fail, and the claims look by themselves.
    redis.pcall('DEL', unpack(keys))
  end
end

-- Calls up the claims in the queue for which there is room beside `used` units, and `more` of those behind them, which look when a
-- place before them ends. A claim with patience has only that long from now on. Returns their ids, since the server does not tell a
-- connection of its own changes, and the ms until the first of them loses its turn.
-- `ids` and `records`: the front of the queue, if it was read.
-- Needs no command that fails when memory is full.
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

-- A reply to an operation that may have called up claims.
local function with_called(reply, called)
  return called[1] and {reply, unpack(called)} or reply
end
