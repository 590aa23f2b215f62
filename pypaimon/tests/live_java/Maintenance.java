import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.fs.Path;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.manifest.BucketEntry;
import org.apache.paimon.operation.CleanOrphanFilesResult;
import org.apache.paimon.operation.ListUnexistingFiles;
import org.apache.paimon.operation.LocalOrphanFilesClean;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.stats.Statistics;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.types.RowType;

/** Java's repairs of tables, and the rows of their snapshots and tags. */
final class Maintenance {
    private Maintenance() {}

    /** snapshots: ids; tags: names. The reply holds the rows of each. */
    static void states(FileStoreTable table, JsonNode command, ObjectNode reply) throws Exception {
        for (String option : List.of("snapshot-id", "tag-name")) {
            ObjectNode found = reply.putObject(option.substring(0, option.indexOf('-')));
            for (JsonNode each : command.get(option)) {
                FileStoreTable then = table.copy(Map.of("scan." + option, each.asText()));
                rows(then, found.putArray(each.asText()));
            }
        }
    }

    private static void rows(FileStoreTable table, ArrayNode rows) throws Exception {
        RowType type = table.rowType();
        ReadBuilder builder = table.newReadBuilder();
        try (RecordReader<InternalRow> reader = builder.newRead().createReader(builder.newScan().plan())) {
            reader.forEachRemaining(row -> {
                ArrayNode values = rows.addArray();
                for (int i = 0; i < type.getFieldCount(); i++) {
                    values.add(Harness.value(Harness.get(row, i, type.getTypeAt(i)), type.getTypeAt(i)));
                }
            });
        }
    }

    /** As ANALYZE of Spark makes them, without those of columns. */
    static Statistics statistics(FileStoreTable table) {
        long rows = 0;
        for (BucketEntry entry : table.newSnapshotReader().bucketEntries()) {
            rows += entry.recordCount();
        }
        return new Statistics(table.snapshotManager().latestSnapshotId(), table.schema().id(), rows, 10 * rows);
    }

    /** older_than: in milliseconds of the epoch. The reply holds the paths of the files that are deleted. */
    static void removeOrphans(FileStoreTable table, JsonNode command, ObjectNode reply) throws Exception {
        ArrayNode deleted = reply.putArray("deleted");
        CleanOrphanFilesResult result =
                new LocalOrphanFilesClean(table, command.get("older_than").asLong(), false).clean();
        for (Path path : result.getDeletedFilesPath()) {
            deleted.add(path.toUri().getPath());
        }
    }

    /** What the procedure `remove_unexisting_files` commits. The reply holds the names of the files. */
    static List<CommitMessage> missing(FileStoreTable table, ObjectNode reply) throws Exception {
        ArrayNode names = reply.putArray("missing");
        List<CommitMessage> messages = new ArrayList<>();
        ListUnexistingFiles operation = new ListUnexistingFiles(table);
        for (BinaryRow partition : table.newSnapshotReader().partitions()) {
            for (Map.Entry<Integer, Map<String, DataFileMeta>> bucket : operation.list(partition).entrySet()) {
                bucket.getValue().keySet().forEach(names::add);
                DataIncrement deleted =
                        new DataIncrement(List.of(), new ArrayList<>(bucket.getValue().values()), List.of());
                messages.add(new CommitMessageImpl(
                        partition, bucket.getKey(), table.coreOptions().bucket(), deleted, CompactIncrement.emptyIncrement()));
            }
        }
        return messages;
    }
}
