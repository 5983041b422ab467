-- A waiter sees to it that the news key exists and reads it, and a release deletes it: so the server tells all waiters, once, and a
-- renewal wakes none.
local function await_news(news)
  -- When memory is full the key is not written, and waiters poll.
  redis.pcall('SET', news, '1', 'NX', 'PX', 60000)
  redis.call('GET', news)
end
