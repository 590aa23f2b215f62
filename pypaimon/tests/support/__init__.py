"""Helpers of the tests, one folder to a subject. What a new test is likely to need:

- a table: `tables.streamed_table.Table`, or `tables.handles.create_table` in any catalog; file by file, as Java's
  writers leave it: `tables.crafted_table.CraftedTable`; of the corpus that Java wrote: `corpus.cases.load`
- rows into it and out of it: `Table.commit`, and `write_by_stream`, `write_with`, `read_with` of `tables.handles`
- a store that counts, fails or hangs: `stores.fault_file_io`, the fixture `hanging`; S3: the fixture `server`
- a process that dies: `crash.crashing_file_io.MortalFileIO` plays one, `crash.steps` kills one
- a live Java: the fixture `java`, with `java.shared_table.Shared` for a table that both write
- programs: `programs`, `programs.JsonProgram`; a crowd of them that shares a group: `groups.readers.Readers`
- the command line: the fixture `program`; a clock: `stores.virtual_clock.VirtualClock`; waiting: `waits.until`
"""
