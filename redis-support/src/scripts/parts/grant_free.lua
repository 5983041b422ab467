-- Grants a lock without a holder, waiters or a revocation request. Returns the reply, or nil if the
-- lock is held or could not be stored. `number` chooses the token of the grant.
local function grant_free(lock, contended, value, ttl, number, ...)
  local stored = redis.pcall('SET', lock, value, 'PX', ttl, 'NX')
  if not stored or not stored.ok then
    return nil
  end
  local numbered, token, spare = pcall(number, ...)
  if not numbered or not token then
    -- A lock must not exist without a token. The script reports the error when it tries again.
    redis.call('DEL', lock)
    return nil
  end
  redis.call('ZREM', contended, lock)
  -- Read after the write, so that the server notifies this connection when another client changes
  -- the key.
  redis.call('GET', lock)
  return {1, token, spare}
end
