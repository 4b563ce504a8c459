-- SPDX-License-Identifier: MIT
-- The first statement of your transaction (BEGIN IMMEDIATE). Its row is one word:
--   run     handle the message and commit
--   done    it was handled and committed before: report success
--   fenced  so it was, and by a later attempt than this one, whose result no
--           longer counts: end
INSERT INTO postern_handled (message_id, handler, fence)
VALUES (:message_id, :handler, :fence)
ON CONFLICT (handler, message_id) DO UPDATE
SET copies = copies + 1, fence = max(fence, excluded.fence)
RETURNING CASE
	WHEN copies = 0 THEN 'run'
	WHEN fence > :fence THEN 'fenced'
	ELSE 'done'
END
