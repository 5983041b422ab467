-- Renews a mutex, as described in `renew`. Uses only commands that work when the memory is full.
local function renew_mutex(lock, revoke, value, ttl)
  local held = redis.call('GET', lock)
  if held ~= value then
    return held and -1 or 0
  end
  redis.call('PEXPIRE', lock, ttl)
  -- Read after the write, so that the server notifies this connection when another client changes
  -- the key.
  redis.call('GET', lock)
  return revoke and redis.call('GET', revoke) == held and 2 or 1
end
