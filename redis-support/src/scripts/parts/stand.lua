-- KEYS: member. ARGV: the key of its floor, an identity for a member that has none, and of the process that was asked for its settings: its id,
-- and whether it has all that it answers on disk (1 or 0).
-- An answer of a process that is gone is surely still known only if that process and this one keep all answers on disk. Otherwise this
-- is a new member, with nothing but its floor.
-- Returns {identity, charter or false, floor, age in µs}, or an error.
local function stand()
  local run, micros = this_run(), clock()
  if run ~= ARGV[3] then
    return redis.error_reply('NOMEMBER the server was started again meanwhile')
  end
  local known = redis.call('HMGET', KEYS[1], 'id', 'run', 'durable', 'since', 'charter')
  local floor, durable = redis.call('GETEX', ARGV[1]), ARGV[4]
  if known[1] and floor and (known[2] == run or known[3] == '1' and durable == '1') then
    durable = known[3] == '1' and durable or '0'
  else
    known = {ARGV[2], run, durable, digits(micros), false}
    redis.call('DEL', KEYS[1])
    floor = floor or '0'
    redis.call('SET', ARGV[1], floor)
  end
  redis.call('HSET', KEYS[1], 'id', known[1], 'run', run, 'durable', durable, 'since', known[4])
  return {known[1], known[5], floor, math.max(micros - known[4], 0)}
end
