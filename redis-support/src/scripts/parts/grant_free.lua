-- Grants a lock that no client holds, waits for or asks for. Returns the reply, or nil if the lock is taken or has failed to be stored.
-- `number(…)` numbers the grant.
local function grant_free(lock, crowd, value, ttl, number, ...)
  local stored = redis.pcall('SET', lock, value, 'PX', ttl, 'NX')
  if not stored or not stored.ok then
    return nil
  end
  local numbered, token, spare = pcall(number, ...)
  if not numbered or not token then
    -- There is no lock without a token. The script reports the failure when it tries again.
    redis.call('DEL', lock)
    return nil
  end
  redis.call('ZREM', crowd, lock)
  -- Read after the write, so that the server tells this connection when another client changes the key.
  redis.call('GET', lock)
  return {1, token, spare}
end
