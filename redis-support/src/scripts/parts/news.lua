-- A waiter ensures that the notification key exists and reads it. A release deletes the key, so the
-- server notifies all waiters once. Renewals do not notify anyone.
local function await_news(news)
  -- If the memory is full, the key is not written, and waiters poll.
  redis.pcall('SET', news, '1', 'NX', 'PX', 60000)
  redis.call('GET', news)
end
