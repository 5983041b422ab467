-- Nobody holds it, waits for it or asks for it: decided before anything else is set up, which takes longer than this.
-- The lock is read only where nobody queues, see below.
if redis.call('EXISTS', KEYS[3], KEYS[4], KEYS[7]) == 0 and redis.call('EXISTS', KEYS[1]) == 0 then
  local token, spare = number_grant(KEYS[2], clock(), tonumber(ARGV[6]))
  if not token then
    return spare
  end
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  -- Read after the write, so that the server tells this connection when anybody changes the key.
  redis.call('GET', KEYS[1])
  return {1, token, spare}
end
