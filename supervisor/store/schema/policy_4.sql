-- For which directory of its project a task was made: the project's time of moving then.
-- What is older than this column knows only when it was made.
ALTER TABLE tasks ADD COLUMN moved INTEGER NOT NULL DEFAULT -1;

-- A task is immutable, and its end is for ever.
DROP TRIGGER tasks_immutable;
CREATE TRIGGER tasks_immutable BEFORE UPDATE ON tasks
WHEN OLD.ended <> 0 OR NEW.id <> OLD.id OR NEW.account <> OLD.account OR NEW.host <> OLD.host OR NEW.project <> OLD.project
  OR NEW.principal <> OLD.principal OR NEW.mode <> OLD.mode OR NEW.created <> OLD.created OR NEW.moved <> OLD.moved
BEGIN SELECT RAISE(ABORT, 'a task is immutable'); END;
