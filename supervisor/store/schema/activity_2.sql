-- Why a call ended as it did, or was not begun, in words.
ALTER TABLE calls ADD COLUMN reason TEXT NOT NULL DEFAULT '';
