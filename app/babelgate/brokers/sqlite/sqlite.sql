-- Every statement of the SQLite binding, addressed by name. A step of the schema is several statements.
--
-- messages  published messages; written once and never updated, so that a large body is never rewritten
-- ready     messages that can be reserved, in the order of their rank, then of publication: one narrow row per message
-- held      messages that cannot: leased (nonce set) or delayed (nonce null), until a time in Unix ms
--           rank, in both and in dead: 9 less the priority, 0 to 9; 5 for an ordinary message, and for those that a
--           process of a version without ranks adds
--           redelivered, in both: 0 never delivered before, 1 delivered before, 2 the last lease expired
-- settled   the lease that ended a message, so that a repeated settle succeeds
-- dead      dead letters; ids are never used again, because a cursor is an id
-- keys      idempotency keys: reserved (answer null) until a time, or done; key_count is the number of them; caller is
--           empty for the keys of versions that did not keep it
-- key_shares the keys of each caller and queue, and of each caller, with an empty queue. Triggers count them, so that
--           the count is right whatever version of this program writes

-- name: schema_1
CREATE TABLE queues (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
);
CREATE TABLE messages (
  id INTEGER PRIMARY KEY,
  published_at INTEGER NOT NULL,
  body BLOB NOT NULL,
  headers BLOB
);
CREATE TABLE ready (
  queue_id INTEGER NOT NULL,
  id INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  redelivered INTEGER NOT NULL,
  PRIMARY KEY (queue_id, id)
) WITHOUT ROWID;
CREATE TABLE held (
  id INTEGER PRIMARY KEY,
  queue_id INTEGER NOT NULL,
  until INTEGER NOT NULL,
  nonce INTEGER,
  failures INTEGER NOT NULL,
  redelivered INTEGER NOT NULL
);
CREATE INDEX held_until ON held (until);
CREATE TABLE settled (
  id INTEGER PRIMARY KEY,
  nonce INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  dead INTEGER NOT NULL
);
CREATE TABLE dead (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  queue_id INTEGER NOT NULL,
  dead_at INTEGER NOT NULL,
  body BLOB NOT NULL,
  headers BLOB
);
CREATE INDEX dead_queue ON dead (queue_id);

-- name: schema_2
CREATE TABLE keys (
  queue TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  token BLOB,
  until INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  answer BLOB,
  PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE INDEX keys_expiry ON keys (expires_at);
CREATE TABLE key_count (n INTEGER NOT NULL);
INSERT INTO key_count (n) VALUES (0);

-- name: schema_3
ALTER TABLE keys ADD COLUMN caller TEXT NOT NULL DEFAULT '';
CREATE TABLE key_shares (
  caller TEXT NOT NULL,
  queue TEXT NOT NULL,
  n INTEGER NOT NULL,
  PRIMARY KEY (caller, queue)
) WITHOUT ROWID;
CREATE TRIGGER key_added AFTER INSERT ON keys WHEN NEW.caller <> '' BEGIN
  INSERT INTO key_shares (caller, queue, n) VALUES (NEW.caller, NEW.queue, 1), (NEW.caller, '', 1)
  ON CONFLICT (caller, queue) DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER key_removed AFTER DELETE ON keys WHEN OLD.caller <> '' BEGIN
  UPDATE key_shares SET n = n - 1 WHERE caller = OLD.caller AND queue IN ('', OLD.queue);
  DELETE FROM key_shares WHERE caller = OLD.caller AND queue IN ('', OLD.queue) AND n < 1;
END;
-- A replaced row is not deleted for the trigger above. Versions without callers replace expired keys.
CREATE TRIGGER key_replaced BEFORE INSERT ON keys WHEN NEW.caller = '' BEGIN
  DELETE FROM keys WHERE queue = NEW.queue AND key = NEW.key;
END;

-- name: schema_4
CREATE TABLE ranked (
  queue_id INTEGER NOT NULL,
  rank INTEGER NOT NULL DEFAULT 5,
  id INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  redelivered INTEGER NOT NULL,
  PRIMARY KEY (queue_id, rank, id)
) WITHOUT ROWID;
INSERT INTO ranked (queue_id, id, failures, redelivered) SELECT queue_id, id, failures, redelivered FROM ready;
DROP TABLE ready;
ALTER TABLE ranked RENAME TO ready;
ALTER TABLE held ADD COLUMN rank INTEGER NOT NULL DEFAULT 5;
ALTER TABLE dead ADD COLUMN rank INTEGER NOT NULL DEFAULT 5;

-- name: file_header
SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
FROM pragma_application_id, pragma_user_version

-- name: has_ranks
SELECT 1 FROM pragma_table_info('held') WHERE name = 'rank'

-- name: find_queue
SELECT id FROM queues WHERE name = ?

-- name: add_queue
INSERT INTO queues (name) VALUES (?)

-- name: list_queues
SELECT name FROM queues ORDER BY name

-- name: last_id
SELECT max((SELECT ifnull(max(id), 0) FROM messages), (SELECT ifnull(max(id), 0) FROM settled))

-- name: add_messages
INSERT INTO messages (id, published_at, body, headers) VALUES (?, ?, ?, ?)

-- name: add_ready
INSERT INTO ready (queue_id, id, failures, redelivered)
SELECT ?, id, 0, 0 FROM messages WHERE id BETWEEN ? AND ?

-- name: add_ranked
INSERT INTO ready (queue_id, rank, id, failures, redelivered) VALUES (?, ?, ?, 0, 0)

-- name: add_delayed
INSERT INTO held (id, queue_id, until, nonce, failures, redelivered, rank) VALUES (?, ?, ?, NULL, 0, 0, ?)

-- name: written_messages
SELECT * FROM messages

-- name: written_ready
SELECT * FROM ready

-- name: written_held
SELECT * FROM held

-- name: next_due
SELECT min(until) FROM held

-- name: due_cutoff
SELECT max(until) FROM (SELECT until FROM held WHERE until <= ? ORDER BY until LIMIT ?)

-- name: due_queues
SELECT name FROM queues WHERE id IN (SELECT queue_id FROM held WHERE until <= ?)

-- name: promote_due
INSERT INTO ready (queue_id, rank, id, failures, redelivered)
SELECT queue_id, rank, id, failures + (nonce IS NOT NULL), iif(nonce IS NOT NULL, 2, redelivered)
FROM held WHERE until <= ?

-- name: remove_due
DELETE FROM held WHERE until <= ?

-- name: next_ready
SELECT m.id, m.body, m.headers, r.failures, r.redelivered, r.rank
FROM ready r CROSS JOIN messages m ON m.id = r.id
WHERE r.queue_id = ? ORDER BY r.rank, r.id LIMIT ?

-- name: lease_ready
INSERT INTO held (id, queue_id, until, nonce, failures, redelivered, rank)
SELECT id, queue_id, ?, ?, failures, redelivered, rank FROM ready WHERE queue_id = ? AND (rank, id) <= (?, ?)

-- name: remove_ready
DELETE FROM ready WHERE queue_id = ? AND (rank, id) <= (?, ?)

-- name: leases
SELECT id, nonce, queue_id FROM held WHERE id IN (SELECT value FROM json_each(?)) AND nonce IS NOT NULL AND until > ?

-- name: settlements
SELECT id, nonce FROM settled WHERE id IN (SELECT value FROM json_each(?)) AND dead = ? AND expires_at > ?

-- name: add_settled
INSERT INTO settled (id, nonce, expires_at, dead)
SELECT id, nonce, max(until, ?), ? FROM held WHERE id IN (SELECT value FROM json_each(?))

-- name: settle_one
INSERT INTO settled (id, nonce, expires_at, dead)
SELECT id, nonce, max(until, ?), 0 FROM held WHERE id = ? AND nonce = ? AND queue_id = ? AND until > ?

-- name: remove_held
DELETE FROM held WHERE id IN (SELECT value FROM json_each(?))

-- name: remove_messages
DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?))

-- name: settled_chunk_end
SELECT id FROM settled WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?

-- name: forget_settled
DELETE FROM settled WHERE id > ? AND id <= ? AND expires_at <= ?

-- name: release_now
INSERT INTO ready (queue_id, rank, id, failures, redelivered)
SELECT queue_id, rank, id, failures + ?, redelivered OR ? FROM held WHERE id IN (SELECT value FROM json_each(?))

-- name: release_later
UPDATE held SET nonce = NULL, until = ?, failures = failures + ?, redelivered = redelivered OR ?
WHERE id IN (SELECT value FROM json_each(?))

-- name: extend
UPDATE held SET until = ? WHERE id IN (SELECT value FROM json_each(?))

-- name: stored
SELECT m.id, m.body, m.headers, h.rank FROM messages m JOIN held h ON h.id = m.id
WHERE m.id IN (SELECT value FROM json_each(?))

-- name: add_dead
INSERT INTO dead (queue_id, dead_at, body, headers, rank) VALUES (?, ?, ?, ?, ?)

-- name: read_dead
SELECT id, body, headers, rank FROM dead WHERE queue_id = :queue_id AND id > :after ORDER BY id LIMIT :limit

-- name: find_dead
SELECT id FROM dead WHERE id IN (SELECT value FROM json_each(?)) AND queue_id = ?

-- name: remove_dead
DELETE FROM dead WHERE id IN (SELECT value FROM json_each(?))

-- name: purgeable_dead
SELECT id FROM dead WHERE queue_id = ? AND id <= ? ORDER BY id LIMIT ?

-- name: last_dead
SELECT ifnull(max(id), 0) FROM dead

-- name: purgeable
SELECT id FROM ready WHERE queue_id = ? AND id <= ?
UNION ALL SELECT id FROM held WHERE queue_id = ? AND id <= ? AND nonce IS NULL
LIMIT ?

-- name: purge_ready
DELETE FROM ready
WHERE queue_id = ? AND rank IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) AND id IN (SELECT value FROM json_each(?))

-- name: peek
SELECT m.body, m.headers
FROM (
  SELECT rank, id FROM (SELECT rank, id FROM ready WHERE queue_id = :queue_id ORDER BY rank, id LIMIT :limit)
  UNION ALL
  SELECT rank, id FROM (
    SELECT rank, id FROM held WHERE queue_id = :queue_id AND until <= :now ORDER BY rank, id LIMIT :limit)
) waiting CROSS JOIN messages m ON m.id = waiting.id
ORDER BY waiting.rank, m.id LIMIT :limit

-- name: stats
SELECT
  (SELECT count(*) FROM ready WHERE queue_id = :queue_id),
  count(*) FILTER (WHERE until <= :now),
  count(*) FILTER (WHERE until > :now AND nonce IS NOT NULL),
  count(*) FILTER (WHERE until > :now AND nonce IS NULL),
  (SELECT count(*) FROM dead WHERE queue_id = :queue_id),
  (SELECT published_at FROM messages WHERE id = min(
    ifnull((SELECT min((SELECT min(id) FROM ready WHERE queue_id = :queue_id AND rank = ranks.column1))
            FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) ranks), 9223372036854775807),
    ifnull((SELECT min(id) FROM held WHERE queue_id = :queue_id AND until <= :now), 9223372036854775807)))
FROM held WHERE queue_id = :queue_id

-- name: ready_queues
WITH RECURSIVE present (queue_id) AS (
  SELECT min(queue_id) FROM ready
  UNION ALL
  SELECT (SELECT min(queue_id) FROM ready WHERE queue_id > present.queue_id) FROM present WHERE queue_id IS NOT NULL
)
SELECT name FROM queues WHERE id IN (SELECT queue_id FROM present)

-- name: find_keys
SELECT key, fingerprint, answer, until, expires_at FROM keys
WHERE queue = ? AND key IN (SELECT value FROM json_each(?))

-- name: add_keys
INSERT INTO keys (queue, key, fingerprint, token, until, expires_at, answer, caller) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: remove_keys
DELETE FROM keys WHERE queue = ? AND key IN (SELECT value FROM json_each(?))

-- name: settle_key
UPDATE keys SET answer = ?, expires_at = ?, token = NULL WHERE queue = ? AND key = ? AND token = ?

-- name: abandon_key
UPDATE keys SET until = 0 WHERE queue = ? AND key = ? AND token = ?

-- name: free_key
DELETE FROM keys WHERE queue = ? AND key = ? AND token = ?

-- name: sweep_keys
DELETE FROM keys WHERE (queue, key) IN (SELECT queue, key FROM keys WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)

-- name: key_shares
SELECT caller, queue, n FROM key_shares WHERE caller IN (SELECT value FROM json_each(?)) AND queue IN ('', ?)

-- name: count_keys
SELECT n FROM key_count

-- name: add_to_key_count
UPDATE key_count SET n = n + ?
