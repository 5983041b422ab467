--- @include "units"

-- Appends holders of permits to a reply: id, remaining TTL in ms, record or false. Only a limited
-- number of leases that expire first are included.
local function list(held, units, now, reply)
  local holders = redis.call('ZRANGEBYSCORE', held, '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 128)
  for i = 1, #holders, 2 do
    reply[#reply + 1] = holders[i]
    reply[#reply + 1] = tonumber(holders[i + 1]) - now
    local record = redis.call('HGET', units, holders[i])
    reply[#reply + 1] = record and {cmsgpack.unpack(record)}
  end
  return reply
end
