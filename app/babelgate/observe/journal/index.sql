-- The statements of the index of a journal, by name. A file of the index keeps the keys of some segments.

-- name: schema
-- An id is a key (32 bits) and the number of a frame in this file (24 bits).
CREATE TABLE keys (id INTEGER PRIMARY KEY);
-- facts: the row as JSON, in the form of index.SegmentRow.
CREATE TABLE segments (
    name TEXT PRIMARY KEY,
    first_frame INTEGER NOT NULL UNIQUE,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    facts TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX segments_by_first_at ON segments (first_at, name);
CREATE INDEX segments_by_last_at ON segments (last_at, name);
-- since: from this time on (Unix ms) all segments are indexed. rows: how many keys were added, at most.
CREATE TABLE state (since INTEGER NOT NULL, next_frame INTEGER NOT NULL, rows INTEGER NOT NULL);

-- name: add_state
INSERT INTO state (since, next_frame, rows) VALUES (:since, 0, 0);

-- name: state
SELECT since, next_frame, rows FROM state;

-- name: grow
UPDATE state SET next_frame = next_frame + :frames, rows = rows + :rows;

-- name: set_since
UPDATE state SET since = :since;

-- name: add_keys
-- frames: a list of lists of keys; first: the number of the first frame. In order, so that each page of the table is
-- written once.
INSERT OR IGNORE INTO keys (id)
SELECT added.value << 24 | (frame.key + :first)
FROM json_each(:frames) AS frame, json_each(frame.value) AS added
ORDER BY 1;

-- name: add_segment
INSERT INTO segments (name, first_frame, first_at, last_at, facts)
VALUES (:name, :first_frame, :first_at, :last_at, :facts);

-- name: has_segment
SELECT 1 FROM segments WHERE name = :name;

-- name: remove_segments
DELETE FROM segments WHERE name IN (SELECT value FROM json_each(:names));

-- name: names
SELECT json_group_array(name) FROM segments;

-- name: last_at_of
SELECT max(last_at) FROM segments WHERE name IN (SELECT value FROM json_each(:names));

-- name: times
SELECT (SELECT min(first_at) FROM segments), (SELECT max(last_at) FROM segments);

-- name: frames
-- The frames that have all keys.
SELECT json_group_array(frame) FROM (
    SELECT keys.id & 16777215 AS frame
    FROM json_each(:keys) AS asked CROSS JOIN keys
    WHERE keys.id BETWEEN asked.value << 24 AND (asked.value << 24) | 16777215
    GROUP BY frame HAVING count(*) = :count
    ORDER BY frame
);

-- name: segments_of_frames
SELECT '[' || group_concat(facts) || ']' FROM segments
WHERE first_frame IN (
    SELECT (SELECT max(first_frame) FROM segments WHERE first_frame <= asked.value) FROM json_each(:frames) AS asked
) AND last_at >= :since AND first_at < :until;

-- name: newest_segments
SELECT '[' || group_concat(facts) || ']' FROM (
    SELECT facts FROM segments
    WHERE last_at >= :since AND first_at < :until AND (last_at, name) < (:at, :name)
    ORDER BY last_at DESC, name DESC LIMIT :limit
);

-- name: oldest_segments
SELECT '[' || group_concat(facts) || ']' FROM (
    SELECT facts FROM segments
    WHERE last_at >= :since AND first_at < :until AND (first_at, name) > (:at, :name)
    ORDER BY first_at, name LIMIT :limit
);
