// Licensed under the Apache License, Version 2.0.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneId;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TimeZone;
import java.util.TreeMap;
import org.apache.paimon.CoreOptions;
import org.apache.paimon.Snapshot;
import org.apache.paimon.append.AppendCompactCoordinator;
import org.apache.paimon.append.AppendCompactTask;
import org.apache.paimon.append.dataevolution.DataEvolutionCompactCoordinator;
import org.apache.paimon.append.dataevolution.DataEvolutionCompactTask;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.FileSystemCatalog;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.consumer.Consumer;
import org.apache.paimon.consumer.ConsumerManager;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.BinaryVector;
import org.apache.paimon.data.Blob;
import org.apache.paimon.data.BlobData;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericArray;
import org.apache.paimon.data.GenericMap;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalMap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.data.variant.GenericVariant;
import org.apache.paimon.data.variant.Variant;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.index.BucketAssigner;
import org.apache.paimon.index.HashBucketAssigner;
import org.apache.paimon.index.SimpleHashBucketAssigner;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.manifest.BucketEntry;
import org.apache.paimon.manifest.ManifestCommittable;
import org.apache.paimon.operation.BaseAppendFileStoreWrite;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.SpecialFields;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.sink.RowPartitionKeyExtractor;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.EndOfScanException;
import org.apache.paimon.table.source.IncrementalSplit;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.SnapshotNotExistPlan;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.source.StreamTableScan;
import org.apache.paimon.table.source.TableRead;
import org.apache.paimon.table.source.TableScan;
import org.apache.paimon.table.system.SystemTableLoader;
import org.apache.paimon.types.ArrayType;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeChecks;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.IntType;
import org.apache.paimon.types.MapType;
import org.apache.paimon.types.MultisetType;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;
import org.apache.paimon.types.VectorType;
import org.apache.paimon.utils.JsonSerdeUtil;

/**
 * Writes and streams tables with Java Paimon as told: one JSON object per line in, one per line out.
 *
 * <p>A command names what to do in {@code do}; what it takes stands beside each method. An error comes back as {@code
 * {"error": {class, message}}} and changes nothing but what was committed by then. Reads come back in the form of the
 * golden corpus' {@code expect.json}.
 */
public final class Harness {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final DateTimeFormatter SECONDS = DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss");
    private static final DateTimeFormatter MILLIS = DateTimeFormatter.ofPattern("HH:mm:ss.SSS");
    private static final int IDLE_POLLS = 20;
    private static final String ZONE = TimeZone.getDefault().getID();

    private final IOManager ioManager;
    private final Map<String, Follower> followers = new HashMap<>();
    private final Map<String, KeyOwners> owners = new HashMap<>();
    private Catalog catalog;
    private long identifier;
    private Prepared prepared;

    private Harness(String scratch) {
        ioManager = IOManager.create(scratch);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        File scratch = Files.createTempDirectory("live-java").toFile();
        Harness harness = new Harness(scratch.getPath());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(harness.answer(JSON.readTree(line))));
        }
        harness.ioManager.close();
        System.exit(0);
    }

    private ObjectNode answer(JsonNode command) {
        ObjectNode reply = JSON.createObjectNode();
        try {
            run(command, reply);
        } catch (Exception | LinkageError | AssertionError error) {
            reply.removeAll();
            reply.set("error", failure(error));
        }
        return reply;
    }

    private void run(JsonNode command, ObjectNode reply) throws Exception {
        String what = command.get("do").asText();
        switch (what) {
            case "several" -> {
                ArrayNode answers = reply.putArray("answers");
                command.get("commands").forEach(each -> answers.add(answer(each)));
            }
            case "zone" -> zone(command.get("zone").asText());
            case "create" -> create(command);
            case "write" -> write(command);
            case "evolve" -> evolve(command);
            case "delete" -> delete(command);
            case "compact", "cluster" -> compact(command, reply);
            case "commit_prepared" -> prepared.commit();
            case "due" -> due(command, reply);
            case "due_clusters" -> clustering(command).describe(reply);
            case "overwrite" -> overwrite(command);
            case "drop_partitions" -> commit(command, (commit) -> commit.truncatePartitions(partitions(command)));
            case "expire_partitions" -> Partitions.expire(table(command), reply);
            case "mark_done" -> Partitions.markDone(table(command), command);
            case "partition_times" -> Partitions.times(command, reply);
            case "compact_manifests" -> commit(command, TableCommitImpl::compactManifests);
            case "truncate" -> commit(command, TableCommitImpl::truncateTable);
            case "expire" -> expire(command);
            case "alter" -> catalog.alterTable(identifier(command), changes(command.get("changes")), false);
            case "tag" -> table(command).createTag(command.get("name").asText(), command.get("snapshot").asLong());
            case "tags" -> Tags.run(table(command), command, reply);
            case "states" -> Maintenance.states(table(command), command, reply);
            case "analyze" -> commit(command, (commit) -> commit.updateStatistics(Maintenance.statistics(table(command))));
            case "remove_orphans" -> Maintenance.removeOrphans(table(command), command, reply);
            case "remove_missing" -> {
                List<CommitMessage> missing = Maintenance.missing(table(command), reply);
                commit(command, (commit) -> commit.commit(Long.MAX_VALUE, missing));
            }
            case "branch" -> branch(command);
            case "delete_branch" -> table(command).deleteBranch(command.get("name").asText());
            case "consumer" -> consumer(command);
            case "rollback" -> table(command).rollbackTo(command.get("snapshot").asLong());
            case "rollback_to_tag" -> table(command).rollbackTo(command.get("tag").asText());
            case "fast_forward" -> table(command).fastForward(command.get("name").asText());
            case "schema" -> describe(command, reply);
            case "rows" -> rows(command, reply);
            case "read" -> read(command, reply);
            case "follow" -> followers.put(command.get("name").asText(), new Follower(command));
            case "poll" -> followers.get(command.get("name").asText()).poll(1, reply);
            case "news" -> followers.get(command.get("name").asText()).news(reply);
            case "unfollow" -> followers.remove(command.get("name").asText()).result(reply);
            default -> throw new IllegalArgumentException("no such command: " + what);
        }
    }

    // ---- tables

    /** As if the JVM had been started with `-Duser.timezone`: Paimon and ORC ask for the default zone each time. */
    private static void zone(String name) {
        TimeZone.setDefault(TimeZone.getTimeZone(ZoneId.of(name)));
    }

    /** warehouse, fields: [[name, type]], partition_keys, primary_keys, options; zone, else that of the start. */
    private void create(JsonNode command) throws Exception {
        zone(command.hasNonNull("zone") ? command.get("zone").asText() : ZONE);
        Options options = new Options();
        options.set("warehouse", command.get("warehouse").asText());
        if (catalog != null) {
            catalog.close();
        }
        followers.clear();
        owners.clear();
        identifier = 0;
        Path warehouse = new Path(command.get("warehouse").asText());
        BufferedFileIO fileIO = new BufferedFileIO();
        fileIO.checkOrMkdirs(warehouse);
        catalog = new FileSystemCatalog(fileIO, warehouse, CatalogContext.create(options));
        catalog.createDatabase("d", true);
        Schema.Builder schema = Schema.newBuilder();
        for (JsonNode field : command.get("fields")) {
            schema.column(field.get(0).asText(), type(field.get(1)));
        }
        schema.partitionKeys(strings(command.get("partition_keys")));
        schema.primaryKey(strings(command.get("primary_keys")));
        schema.options(options(command.get("options")));
        catalog.createTable(Identifier.create("d", "t"), schema.build(), false);
    }

    /** The table of a command, of its `branch`, with its `options`. */
    private FileStoreTable table(JsonNode command) throws Exception {
        FileStoreTable table = (FileStoreTable) catalog.getTable(identifier(command));
        return table.copyWithoutTimeTravel(options(command.get("options")));
    }

    private static Identifier identifier(JsonNode command) {
        String name = command.hasNonNull("branch") ? "t$branch_" + command.get("branch").asText() : "t";
        return Identifier.create("d", name);
    }

    /** The latest schema: fields (with the type as SQL and as Paimon's JSON), partition_keys, primary_keys, options. */
    private void describe(JsonNode command, ObjectNode reply) throws Exception {
        FileStoreTable table = table(command);
        ArrayNode fields = reply.putArray("fields");
        for (DataField field : table.rowType().getFields()) {
            ObjectNode entry = fields.addObject().put("name", field.name()).put("type", field.type().asSQLString());
            entry.set("json", JSON.readTree(JsonSerdeUtil.toFlatJson(field.type())));
        }
        table.partitionKeys().forEach(reply.putArray("partition_keys")::add);
        table.primaryKeys().forEach(reply.putArray("primary_keys")::add);
        table.options().forEach(reply.putObject("options")::put);
    }

    /** changes: [[kind, argument...]]. */
    private static List<SchemaChange> changes(JsonNode given) {
        List<SchemaChange> changes = new ArrayList<>();
        for (JsonNode change : given) {
            String[] names = change.get(1).asText().split("\\.");
            changes.add(
                    switch (change.get(0).asText()) {
                        case "add" -> SchemaChange.addColumn(names, type(change.get(2)), null, null);
                        case "drop" -> SchemaChange.dropColumn(names);
                        case "rename" -> SchemaChange.renameColumn(names, change.get(2).asText());
                        case "type" -> SchemaChange.updateColumnType(names, type(change.get(2)), false);
                        case "first" ->
                                SchemaChange.updateColumnPosition(SchemaChange.Move.first(change.get(1).asText()));
                        case "set" -> SchemaChange.setOption(change.get(1).asText(), change.get(2).asText());
                        case "reset" -> SchemaChange.removeOption(change.get(1).asText());
                        default -> throw new IllegalArgumentException("no such change: " + change);
                    });
        }
        return changes;
    }

    private void branch(JsonNode command) throws Exception {
        String name = command.get("name").asText();
        if (command.hasNonNull("tag")) {
            table(command).createBranch(name, command.get("tag").asText());
        } else {
            table(command).createBranch(name);
        }
    }

    // ---- writing

    /**
     * flushes: [[[kind, value...]]]; watermark; options; branch; buckets: their number where the writer chooses them; or
     * assigns: whether Paimon's assigner does.
     */
    private void write(JsonNode command) throws Exception {
        FileStoreTable table = table(command);
        ManifestCommittable committable = new ManifestCommittable(
                ++identifier, command.hasNonNull("watermark") ? command.get("watermark").asLong() : null);
        try (TableWriteImpl<?> write = table.newWrite("writer");
                TableCommitImpl commit = table.newCommit("writer").ignoreEmptyCommit(false)) {
            flush(table, write, command, assigner(table)).forEach(committable::addFileCommittable);
            commit.commit(committable);
        }
    }

    /** partition: {name: text}; flushes; options; buckets; assigns. */
    private void overwrite(JsonNode command) throws Exception {
        FileStoreTable table = table(command);
        identifier++;
        try (TableWriteImpl<?> write = table.newWrite("overwriter").withIgnorePreviousFiles(true);
                TableCommitImpl commit = table.newCommit("overwriter").ignoreEmptyCommit(false)) {
            CoreOptions options = table.coreOptions();
            BucketAssigner assigner = new SimpleHashBucketAssigner(
                    1, 0, options.dynamicBucketTargetRowNum(), options.dynamicBucketMaxBuckets());
            List<CommitMessage> messages = flush(table, write, command, assigner);
            commit.withOverwrite(options(command.get("partition"))).commit(identifier, messages);
        }
    }

    private static BucketAssigner assigner(FileStoreTable table) {
        CoreOptions options = table.coreOptions();
        return new HashBucketAssigner(
                table.snapshotManager(), "writer", table.store().newIndexFileHandler(), 1, 1, 0,
                options.dynamicBucketTargetRowNum(), options.dynamicBucketMaxBuckets());
    }

    private List<CommitMessage> flush(
            FileStoreTable table, TableWriteImpl<?> write, JsonNode command, BucketAssigner assigner) throws Exception {
        boolean moves = table.bucketMode() == BucketMode.KEY_DYNAMIC;
        boolean chooses = moves || table.bucketMode() == BucketMode.HASH_DYNAMIC;
        KeyOwners keyOwners = owners.computeIfAbsent(command.path("branch").asText(), branch -> new KeyOwners());
        int[] keys = table.rowType().getFieldIndices(table.schema().trimmedPrimaryKeys());
        List<CommitMessage> messages = new ArrayList<>();
        write.withIOManager(ioManager);
        for (JsonNode flush : command.get("flushes")) {
            for (JsonNode given : flush) {
                GenericRow written = row(given, table.rowType());
                for (GenericRow row : moves ? keyOwners.placed(table, written) : List.of(written)) {
                    if (chooses && command.path("assigns").asBoolean()) {
                        RowPartitionKeyExtractor extractor = new RowPartitionKeyExtractor(table.schema());
                        int hash = extractor.trimmedPrimaryKey(row).hashCode();
                        write.write(row, assigner.assign(extractor.partition(row), hash));
                    } else if (chooses) {
                        write.write(row, chosenBucket(row, keys, command.path("buckets").asInt(2)));
                    } else {
                        write.write(row);
                    }
                }
            }
            messages.addAll(write.prepareCommit(true, identifier));
        }
        return messages;
    }

    /** seed; flushes: takes rows out of an append table, and writes others in the same commit. */
    private void delete(JsonNode command) throws Exception {
        FileStoreTable table = table(command).copyWithoutTimeTravel(Map.of("write-only", "true"));
        identifier++;
        try (TableWriteImpl<?> write = table.newWrite("deleter");
                TableCommitImpl commit = table.newCommit("deleter").ignoreEmptyCommit(false)) {
            write.withIOManager(ioManager);
            List<CommitMessage> messages = new ArrayList<>(new RowChanges(table, command.get("seed").asLong()).delete(write));
            messages.addAll(flush(table, write, command, assigner(table)));
            messages.addAll(write.prepareCommit(true, identifier));
            commit.commit(identifier, messages);
        }
    }

    private static int chosenBucket(GenericRow row, int[] keys, int count) {
        int hash = 0;
        for (int key : keys) {
            hash = 31 * hash + row.getField(key).toString().hashCode();
        }
        return Math.floorMod(hash, count);
    }

    /** columns; rows: [[kind, value of each of these...]], repeated; range: writes columns of rows that are there. */
    @SuppressWarnings("unchecked")
    private void evolve(JsonNode command) throws Exception {
        FileStoreTable table = table(command);
        Map<Long, DataSplit> splits = new TreeMap<>();
        Map<Long, Long> counts = new HashMap<>();
        for (DataSplit split : table.newSnapshotReader().read().dataSplits()) {
            for (DataFileMeta file : split.dataFiles()) {
                // A file of blobs may begin inside of the range of a data file.
                if (!file.fileName().endsWith(".blob")) {
                    splits.put(file.nonNullFirstRowId(), split);
                    counts.put(file.nonNullFirstRowId(), file.rowCount());
                }
            }
        }
        if (splits.isEmpty()) {
            return;
        }
        long first = List.copyOf(splits.keySet()).get(command.get("range").asInt() % splits.size());
        RowType type = table.rowType().project(strings(command.get("columns")));
        JsonNode rows = command.get("rows");
        identifier++;
        try (TableWriteImpl<InternalRow> write = (TableWriteImpl<InternalRow>) table.newWrite("evolver");
                TableCommitImpl commit = table.newCommit("evolver")) {
            write.withIOManager(ioManager).withWriteType(type);
            for (int i = 0; i < counts.get(first); i++) {
                write.getWrite().write(splits.get(first).partition(), 0, row(rows.get(i % rows.size()), type));
            }
            List<CommitMessage> messages = write.prepareCommit(true, identifier);
            for (CommitMessage message : messages) {
                // Rows and blobs may each be in several files, one after the other.
                long[] next = {first, first};
                ((CommitMessageImpl) message).newFilesIncrement().newFiles().replaceAll(file -> {
                    int kind = file.fileName().endsWith(".blob") ? 1 : 0;
                    next[kind] += file.rowCount();
                    return file.assignFirstRowId(next[kind] - file.rowCount());
                });
            }
            commit.commit(identifier, messages);
        }
    }

    /**
     * full; options: compacts every bucket of the latest snapshot in one commit, after rows that are postponed came.
     * prepare: leaves the commit to {@code commit_prepared}, and names the files that it replaces, with their levels.
     */
    private void compact(JsonNode command, ObjectNode reply) throws Exception {
        FileStoreTable table = table(command);
        identifier++;
        boolean clusters = command.get("do").asText().equals("cluster");
        boolean full = command.path("full").asBoolean(true);
        List<CommitMessage> messages =
                clusters ? clustering(command).messages(identifier) : compacted(table, full);
        Prepared made = new Prepared(table, identifier, messages, clusters);
        if (command.path("prepare").asBoolean()) {
            prepared = made;
            made.describe(reply);
        } else {
            made.commit();
        }
    }

    /** What a compaction has written; no messages where there is nothing to commit at all. */
    private record Prepared(FileStoreTable table, long identifier, List<CommitMessage> messages, boolean ignoresEmpty) {
        void commit() throws Exception {
            if (messages == null) {
                return;
            }
            try (TableCommitImpl commit = table.newCommit("compactor").ignoreEmptyCommit(ignoresEmpty)) {
                commit.commit(identifier, messages);
            }
        }

        void describe(ObjectNode reply) {
            ArrayNode names = reply.putArray("files");
            for (CommitMessage message : messages == null ? List.<CommitMessage>of() : messages) {
                ((CommitMessageImpl) message).compactIncrement().compactBefore().forEach(file -> names.add(place(file)));
            }
        }
    }

    /** A compaction may give a file another level, and no other name. */
    private static String place(DataFileMeta file) {
        return file.fileName() + " " + file.level();
    }

    private List<CommitMessage> compacted(FileStoreTable table, boolean full) throws Exception {
        List<CommitMessage> messages = new ArrayList<>();
        if (table.coreOptions().dataEvolutionEnabled()) {
            try {
                for (DataEvolutionCompactTask task : coordinator(table).plan()) {
                    messages.add(task.doCompact(table, "compactor"));
                }
            } catch (EndOfScanException nothing) {
                return null;
            }
            messages.addAll(movedVectors(table, messages));
        } else if (table.bucketMode() == BucketMode.BUCKET_UNAWARE) {
            BaseAppendFileStoreWrite writer = (BaseAppendFileStoreWrite) table.store().newWrite("compactor");
            if (table.coreOptions().rowTrackingEnabled()) {
                // As Spark's procedure does.
                writer.withWriteType(SpecialFields.rowTypeWithRowTracking(table.rowType()));
            }
            try {
                for (AppendCompactTask task : new AppendCompactCoordinator(table, false).run()) {
                    messages.add(task.doCompact(table, writer));
                }
            } catch (EndOfScanException noSnapshot) {
                return null;
            } finally {
                writer.close();
            }
        } else if (table.bucketMode() == BucketMode.POSTPONE_MODE) {
            messages.addAll(PostponedBuckets.distribute(table, ioManager, identifier, full));
        } else {
            try (TableWriteImpl<?> write = table.newWrite("compactor")) {
                // A writer that clusters buckets closes what it is given.
                write.withIOManager(IOManager.create(ioManager.tempDirs()));
                for (BucketEntry entry : table.newSnapshotReader().bucketEntries()) {
                    if (entry.bucket() >= 0) {
                        write.compact(entry.partition(), entry.bucket(), full);
                    }
                }
                messages.addAll(write.prepareCommit(true, identifier));
            }
        }
        return messages;
    }

    /** Of data files only. Java 2 takes the snapshot too. */
    private static DataEvolutionCompactCoordinator coordinator(FileStoreTable table) throws Exception {
        Snapshot latest = table.snapshotManager().latestSnapshot();
        if (latest == null) {
            throw new EndOfScanException();
        }
        Class<DataEvolutionCompactCoordinator> type = DataEvolutionCompactCoordinator.class;
        try {
            return type.getConstructor(FileStoreTable.class, boolean.class, boolean.class)
                    .newInstance(table, false, false);
        } catch (NoSuchMethodException newer) {
            return type.getConstructor(FileStoreTable.class, boolean.class, boolean.class, Snapshot.class)
                    .newInstance(table, false, false, latest);
        }
    }

    /** The deletion vectors of files that a compaction replaces, in Java 2. Java 1.4 has no such tables. */
    @SuppressWarnings("unchecked")
    private static List<CommitMessage> movedVectors(FileStoreTable table, List<CommitMessage> messages)
            throws Exception {
        if (!table.coreOptions().deletionVectorsEnabled()) {
            return List.of();
        }
        String name = "org.apache.paimon.append.dataevolution.DataEvolutionCompactDeletionVectorRewriter";
        Class<?> type = Class.forName(name);
        Object rewriter = type.getConstructor(FileStoreTable.class, Snapshot.class)
                .newInstance(table, table.snapshotManager().latestSnapshot());
        return (List<CommitMessage>) type.getMethod("rewriteDeletionVectors", List.class).invoke(rewriter, messages);
    }

    /** options; the reply holds the files of each task of a table without buckets that is due. */
    private void due(JsonNode command, ObjectNode reply) throws Exception {
        FileStoreTable table = table(command);
        ArrayNode tasks = reply.putArray("units");
        try {
            List<List<DataFileMeta>> found = table.coreOptions().dataEvolutionEnabled()
                    ? coordinator(table).plan().stream().map(DataEvolutionCompactTask::compactBefore).toList()
                    : new AppendCompactCoordinator(table, false)
                            .run().stream().map(AppendCompactTask::compactBefore).toList();
            for (List<DataFileMeta> files : found) {
                ArrayNode names = tasks.addObject().putArray("files");
                files.forEach(file -> names.add(file.fileName()));
            }
        } catch (EndOfScanException nothing) {
            // The table has no files.
        }
    }

    private Clustering clustering(JsonNode command) throws Exception {
        return new Clustering(table(command), ioManager, command, options(command.path("partition")));
    }

    private interface Committing {
        void run(TableCommitImpl commit) throws Exception;
    }

    private void commit(JsonNode command, Committing body) throws Exception {
        try (TableCommitImpl commit = table(command).newCommit("committer")) {
            body.run(commit);
        }
    }

    private static List<Map<String, String>> partitions(JsonNode command) {
        List<Map<String, String>> partitions = new ArrayList<>();
        command.get("partitions").forEach(partition -> partitions.add(options(partition)));
        return partitions;
    }

    /** options: with `snapshot.num-retained.*`, `changelog.num-retained.*`. */
    private void expire(JsonNode command) throws Exception {
        FileStoreTable table = table(command);
        table.newExpireSnapshots().config(table.coreOptions().expireConfig()).expire();
        if (table.coreOptions().changelogLifecycleDecoupled()) {
            table.newExpireChangelog().config(table.coreOptions().expireConfig()).expire();
        }
    }

    /** name; next: the snapshot that the consumer reads next. */
    private void consumer(JsonNode command) throws Exception {
        FileStoreTable table = table(command);
        new ConsumerManager(table.fileIO(), table.location())
                .resetConsumer(command.get("name").asText(), new Consumer(command.get("next").asLong()));
    }

    // ---- streaming

    /**
     * The rows of a batch read, the files by name and level, and where each split ends, of which bucket: options,
     * system_table, branch, filter.
     */
    private void rows(JsonNode command, ObjectNode reply) throws Exception {
        Table table = table(command);
        if (command.hasNonNull("system_table")) {
            table = SystemTableLoader.load(command.get("system_table").asText(), (FileStoreTable) table);
        }
        RowType type = table.rowType();
        ReadBuilder builder = table.newReadBuilder();
        if (command.hasNonNull("filter")) {
            builder.withFilter(predicate(command.get("filter"), type));
        }
        List<Split> splits = builder.newScan().plan().splits();
        type.getFieldNames().forEach(reply.putArray("columns")::add);
        ArrayNode types = reply.putArray("types");
        type.getFields().forEach(field -> types.add(field.type().asSQLString()));
        ArrayNode files = reply.putArray("files");
        ArrayNode rows = reply.putArray("rows");
        ArrayNode ends = reply.putArray("ends");
        TableRead read = builder.newRead();
        for (Split split : splits) {
            if (split instanceof DataSplit data) {
                data.dataFiles().forEach(file -> files.add(place(file)));
            }
            try (RecordReader<InternalRow> reader = read.createReader(split)) {
                reader.forEachRemaining(row -> {
                    ArrayNode values = rows.addArray();
                    for (int i = 0; i < type.getFieldCount(); i++) {
                        values.add(value(get(row, i, type.getTypeAt(i)), type.getTypeAt(i)));
                    }
                });
            }
            if (split instanceof DataSplit data) {
                ends.addArray().add(data.bucketPath()).add(rows.size());
            }
        }
    }

    private void read(JsonNode command, ObjectNode reply) {
        Follower follower = new Follower(command);
        follower.poll(IDLE_POLLS, reply);
        follower.result(reply);
    }

    /** options, restore, filter, execute_filter, bucket_filter, shard, projection, system_table, branch, notify_each_plan. */
    private final class Follower {
        private final ArrayNode plans = JSON.createArrayNode();
        private String stage = "open";
        private ObjectNode error;
        private boolean ended;
        private int polls;
        private RowType type;
        private RowType tableType;
        private List<String> partitionKeys;
        private StreamTableScan scan;
        private TableRead tableRead;
        private boolean notifies;
        private Long confirmed;

        private Follower(JsonNode command) {
            try {
                open(command);
            } catch (Exception failed) {
                fail(failed);
            }
        }

        private void open(JsonNode command) throws Exception {
            Table table = table(command);
            if (command.hasNonNull("system_table")) {
                table = SystemTableLoader.load(command.get("system_table").asText(), (FileStoreTable) table);
            }
            tableType = table.rowType();
            type = tableType;
            partitionKeys = table.partitionKeys();
            ReadBuilder builder = table.newReadBuilder();
            if (command.hasNonNull("filter")) {
                builder.withFilter(predicate(command.get("filter"), type));
            }
            if (command.hasNonNull("projection")) {
                int[] projection = JSON.convertValue(command.get("projection"), int[].class);
                builder.withProjection(projection);
                type = type.project(projection);
            }
            if (command.hasNonNull("bucket_filter")) {
                int bucket = command.get("bucket_filter").asInt();
                builder.withBucketFilter(each -> each == bucket);
            }
            if (command.hasNonNull("shard")) {
                builder.withShard(command.get("shard").get(0).asInt(), command.get("shard").get(1).asInt());
            }
            notifies = command.path("notify_each_plan").asBoolean();
            tableRead = builder.newRead();
            if (command.path("execute_filter").asBoolean()) {
                tableRead.executeFilter();
            }
            scan = builder.newStreamScan();
            if (command.hasNonNull("restore")) {
                scan.restore(command.get("restore").asLong());
            }
        }

        private void fail(Throwable failed) {
            error = failure(failed);
            error.put("stage", stage);
            error.put("polls", polls);
        }

        /** Until so many polls in a row came back with nothing. */
        private void poll(int idle, ObjectNode reply) {
            if (error != null || ended) {
                return;
            }
            for (polls = 0; polls < idle; ) {
                Long before = scan.checkpoint();
                stage = "plan";
                TableScan.Plan plan;
                try {
                    plan = scan.plan();
                } catch (EndOfScanException end) {
                    ended = true;
                    return;
                } catch (Exception failed) {
                    fail(failed);
                    return;
                }
                Long after = scan.checkpoint();
                boolean nothing = plan instanceof SnapshotNotExistPlan;
                if (notifies && after != null && !after.equals(confirmed)) {
                    scan.notifyCheckpointComplete(after);
                    confirmed = after;
                }
                if (nothing && Objects.equals(before, after)) {
                    polls++;
                    continue;
                }
                polls = 0;
                ObjectNode entry = plans.addObject();
                entry.put("next", after);
                entry.put("watermark", scan.watermark());
                entry.put("no_snapshot", nothing);
                ArrayNode splits = entry.putArray("splits");
                stage = "read";
                try {
                    for (Split split : plan.splits()) {
                        addSplit(split, splits.addObject());
                    }
                } catch (Exception failed) {
                    fail(failed);
                    return;
                }
            }
        }

        private void addSplit(Split split, ObjectNode entry) throws Exception {
            ObjectNode partition = entry.putObject("partition");
            InternalRow values;
            List<DataFileMeta> before;
            List<DataFileMeta> after;
            if (split instanceof IncrementalSplit incremental) {
                entry.put("bucket", incremental.bucket());
                values = incremental.partition();
                before = incremental.beforeFiles();
                after = incremental.afterFiles();
            } else {
                DataSplit data = (DataSplit) split;
                entry.put("bucket", data.bucket());
                values = data.partition();
                before = List.of();
                after = data.dataFiles();
            }
            if (values.getFieldCount() > 0) {
                for (int i = 0; i < partitionKeys.size(); i++) {
                    DataType kind = tableType.getField(partitionKeys.get(i)).type();
                    partition.set(partitionKeys.get(i), value(get(values, i, kind), kind));
                }
            }
            before.forEach(file -> entry.withArray("before_files").add(file.fileName()));
            after.forEach(file -> entry.withArray("files").add(file.fileName()));
            ArrayNode rows = entry.putArray("rows");
            try (RecordReader<InternalRow> reader = tableRead.createReader(split)) {
                reader.forEachRemaining(row -> addRow(row, rows.addArray()));
            }
        }

        private void addRow(InternalRow row, ArrayNode target) {
            target.add(row.getRowKind().shortString());
            for (int i = 0; i < type.getFieldCount(); i++) {
                target.add(value(get(row, i, type.getTypeAt(i)), type.getTypeAt(i)));
            }
        }

        /** What came since the last call. */
        private void news(ObjectNode reply) {
            poll(1, reply);
            result(reply);
            reply.set("plans", plans.deepCopy());
            plans.removeAll();
        }

        private void result(ObjectNode reply) {
            reply.set("plans", plans);
            if (error != null) {
                reply.putObject("end").set("error", error);
            } else {
                reply.put("end", ended ? "end_of_scan" : "waiting");
            }
            reply.put("final_next", scan == null ? null : scan.checkpoint());
        }
    }

    /** [field, op, value]. */
    private static Predicate predicate(JsonNode filter, RowType type) {
        PredicateBuilder builder = new PredicateBuilder(type);
        int index = type.getFieldIndex(filter.get(0).asText());
        DataType kind = type.getTypeAt(index);
        JsonNode given = filter.get(2);
        return switch (filter.get(1).asText()) {
            case "=" -> builder.equal(index, literal(given, kind));
            case "<>" -> builder.notEqual(index, literal(given, kind));
            case "<" -> builder.lessThan(index, literal(given, kind));
            case "<=" -> builder.lessOrEqual(index, literal(given, kind));
            case ">" -> builder.greaterThan(index, literal(given, kind));
            case ">=" -> builder.greaterOrEqual(index, literal(given, kind));
            case "is_null" -> builder.isNull(index);
            case "not_null" -> builder.isNotNull(index);
            case "in" -> {
                List<Object> literals = new ArrayList<>();
                given.forEach(each -> literals.add(literal(each, kind)));
                yield builder.in(index, literals);
            }
            default -> throw new IllegalArgumentException("no such operator: " + filter);
        };
    }

    // ---- values, in the form of the corpus

    private static GenericRow row(JsonNode given, RowType type) {
        GenericRow row = new GenericRow(RowKind.fromShortString(given.get(0).asText()), type.getFieldCount());
        for (int i = 0; i < type.getFieldCount(); i++) {
            row.setField(i, literal(given.get(i + 1), type.getTypeAt(i)));
        }
        return row;
    }

    private static Object literal(JsonNode given, DataType type) {
        if (given == null || given.isNull()) {
            return null;
        }
        return switch (type.getTypeRoot()) {
            case CHAR, VARCHAR -> BinaryString.fromString(given.asText());
            case BOOLEAN -> given.asBoolean();
            case BINARY, VARBINARY -> Base64.getDecoder().decode(given.asText());
            case DECIMAL -> {
                int precision = DataTypeChecks.getPrecision(type);
                yield Decimal.fromBigDecimal(new BigDecimal(given.asText()), precision, DataTypeChecks.getScale(type));
            }
            case TINYINT -> (byte) given.asInt();
            case SMALLINT -> (short) given.asInt();
            case INTEGER -> given.asInt();
            case BIGINT -> given.asLong();
            case FLOAT -> given.isTextual() ? Float.valueOf(given.asText()) : (Float) (float) given.asDouble();
            case DOUBLE -> given.isTextual() ? Double.valueOf(given.asText()) : (Double) given.asDouble();
            case DATE -> (int) LocalDate.parse(given.asText()).toEpochDay();
            case TIME_WITHOUT_TIME_ZONE -> (int) (LocalTime.parse(given.asText()).toNanoOfDay() / 1_000_000);
            case TIMESTAMP_WITHOUT_TIME_ZONE, TIMESTAMP_WITH_LOCAL_TIME_ZONE ->
                    Timestamp.fromLocalDateTime(LocalDateTime.parse(given.asText().replace("Z", "")));
            case BLOB -> new BlobData(Base64.getDecoder().decode(given.asText()));
            case VARIANT -> GenericVariant.fromJson(given.asText());
            case VECTOR -> {
                float[] items = new float[given.size()];
                for (int i = 0; i < items.length; i++) {
                    items[i] = (float) given.get(i).asDouble();
                }
                yield BinaryVector.fromPrimitiveArray(items);
            }
            case ARRAY -> {
                Object[] items = new Object[given.size()];
                for (int i = 0; i < items.length; i++) {
                    items[i] = literal(given.get(i), ((ArrayType) type).getElementType());
                }
                yield new GenericArray(items);
            }
            case MAP -> {
                Map<Object, Object> items = new LinkedHashMap<>();
                MapType map = (MapType) type;
                given.forEach(
                        each -> items.put(literal(each.get(0), map.getKeyType()), literal(each.get(1), map.getValueType())));
                yield new GenericMap(items);
            }
            case MULTISET -> {
                Map<Object, Object> items = new LinkedHashMap<>();
                DataType element = ((MultisetType) type).getElementType();
                given.forEach(each -> items.put(literal(each.get(0), element), each.get(1).asInt()));
                yield new GenericMap(items);
            }
            case ROW -> {
                RowType nested = (RowType) type;
                GenericRow row = new GenericRow(nested.getFieldCount());
                for (int i = 0; i < nested.getFieldCount(); i++) {
                    DataField field = nested.getFields().get(i);
                    row.setField(i, literal(given.get(field.name()), field.type()));
                }
                yield row;
            }
            default -> throw new IllegalArgumentException("no values of type " + type);
        };
    }

    static Object get(InternalRow row, int index, DataType type) {
        return InternalRow.createFieldGetter(type.copy(true), index).getFieldOrNull(row);
    }

    static JsonNode value(Object value, DataType type) {
        if (value == null) {
            return JSON.nullNode();
        }
        return switch (type.getTypeRoot()) {
            case CHAR, VARCHAR -> JSON.getNodeFactory().textNode(value.toString());
            case BINARY, VARBINARY -> JSON.getNodeFactory().textNode(Base64.getEncoder().encodeToString((byte[]) value));
            case DECIMAL -> JSON.getNodeFactory().textNode(((Decimal) value).toBigDecimal().toPlainString());
            case FLOAT -> {
                float number = (Float) value;
                yield Float.isFinite(number)
                        ? JSON.getNodeFactory().numberNode(number)
                        : JSON.getNodeFactory().textNode(Float.toString(number));
            }
            case DOUBLE -> {
                double number = (Double) value;
                yield Double.isFinite(number)
                        ? JSON.getNodeFactory().numberNode(number)
                        : JSON.getNodeFactory().textNode(Double.toString(number));
            }
            case DATE -> JSON.getNodeFactory().textNode(LocalDate.ofEpochDay((Integer) value).toString());
            case TIME_WITHOUT_TIME_ZONE ->
                    JSON.getNodeFactory().textNode(MILLIS.format(LocalTime.ofNanoOfDay((Integer) value * 1_000_000L)));
            case TIMESTAMP_WITHOUT_TIME_ZONE -> JSON.getNodeFactory().textNode(timestamp((Timestamp) value, type));
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE ->
                    JSON.getNodeFactory().textNode(timestamp((Timestamp) value, type) + "Z");
            case BLOB -> JSON.getNodeFactory().textNode(Base64.getEncoder().encodeToString(((Blob) value).toData()));
            case VARIANT -> JSON.getNodeFactory().textNode(((Variant) value).toJson());
            case VECTOR -> items((InternalArray) value, ((VectorType) type).getElementType());
            case ARRAY -> items((InternalArray) value, ((ArrayType) type).getElementType());
            case MAP, MULTISET -> {
                boolean counted = type instanceof MultisetType;
                DataType keyType = counted ? ((MultisetType) type).getElementType() : ((MapType) type).getKeyType();
                DataType valueType = counted ? new IntType(false) : ((MapType) type).getValueType();
                ArrayNode entries = JSON.createArrayNode();
                ArrayNode keys = items(((InternalMap) value).keyArray(), keyType);
                ArrayNode values = items(((InternalMap) value).valueArray(), valueType);
                for (int i = 0; i < keys.size(); i++) {
                    entries.addArray().add(keys.get(i)).add(values.get(i));
                }
                yield entries;
            }
            case ROW -> {
                ObjectNode row = JSON.createObjectNode();
                List<DataField> fields = ((RowType) type).getFields();
                for (int i = 0; i < fields.size(); i++) {
                    row.set(fields.get(i).name(), value(get((InternalRow) value, i, fields.get(i).type()), fields.get(i).type()));
                }
                yield row;
            }
            default -> JSON.valueToTree(value);
        };
    }

    private static ArrayNode items(InternalArray array, DataType type) {
        ArrayNode items = JSON.createArrayNode();
        InternalArray.ElementGetter getter = InternalArray.createElementGetter(type.copy(true));
        for (int i = 0; i < array.size(); i++) {
            items.add(value(getter.getElementOrNull(array, i), type));
        }
        return items;
    }

    private static String timestamp(Timestamp value, DataType type) {
        LocalDateTime time = value.toLocalDateTime();
        String nanos = String.format("%09d", time.getNano());
        return SECONDS.format(time) + "." + nanos.substring(0, DataTypeChecks.getPrecision(type) <= 6 ? 6 : 9);
    }

    // ---- small things

    private static DataType type(JsonNode given) {
        return DataTypeJsonParser.parseDataType(given);
    }

    private static List<String> strings(JsonNode given) {
        List<String> strings = new ArrayList<>();
        given.forEach(each -> strings.add(each.asText()));
        return strings;
    }

    private static Map<String, String> options(JsonNode given) {
        Map<String, String> options = new HashMap<>();
        if (given != null) {
            given.fields().forEachRemaining(entry -> options.put(entry.getKey(), entry.getValue().asText()));
        }
        return options;
    }

    private static ObjectNode failure(Throwable failed) {
        ObjectNode error = JSON.createObjectNode();
        error.put("class", failed.getClass().getName());
        error.put("message", String.valueOf(failed.getMessage()));
        error.put("cause", failed.getCause() == null ? null : failed.getCause().toString());
        StackTraceElement[] trace = failed.getStackTrace();
        for (int i = 0; i < Math.min(8, trace.length); i++) {
            error.withArray("trace").add(trace[i].toString());
        }
        return error;
    }
}
