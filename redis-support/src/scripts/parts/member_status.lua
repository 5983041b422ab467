--- @include "time"
--- @include "member"

-- Returns the membership status. If the process has changed, earlier replies are certainly kept
-- only if both processes write data to the disk before they reply. Otherwise this is a new member,
-- which keeps only its minimum token. `status` describes the parameters.
-- Returns  {identity, quorum configuration or false, minimum token, age in µs}, or an error.
local function member_status(member, floor_key, fresh, process, is_durable)
  local run, micros = this_run(), clock()
  if run ~= process then
    return redis.error_reply('NOMEMBER the server was started again meanwhile')
  end
  local id, known_run, was_durable, since, charter =
    unpack(redis.call('HMGET', member, 'id', 'run', 'durable', 'since', 'charter'))
  local floor = redis.call('GETEX', floor_key)
  if id and floor and (known_run == run or was_durable == '1' and is_durable == '1') then
    is_durable = was_durable == '1' and is_durable or '0'
  else
    id, since, charter = fresh, digits(micros), false
    redis.call('DEL', member)
    floor = floor or '0'
    redis.call('SET', floor_key, floor)
  end
  redis.call('HSET', member, 'id', id, 'run', run, 'durable', is_durable, 'since', since)
  return {id, charter, floor, math.max(micros - since, 0)}
end
