// Licensed under the Apache License, Version 2.0.

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.paimon.CoreOptions;
import org.apache.paimon.append.cluster.IncrementalClusterManager;
import org.apache.paimon.append.cluster.Sorter;
import org.apache.paimon.compact.CompactUnit;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.partition.PartitionPredicate;
import org.apache.paimon.reader.RecordReaderIterator;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.utils.MutableObjectIterator;
import org.apache.paimon.utils.Pair;

/** Incremental clustering of tables without buckets, as the jobs of Flink and Spark do it, with one task. */
final class Clustering {
    private final FileStoreTable table;
    private final IOManager ioManager;
    private final IncrementalClusterManager manager;
    private final Map<BinaryRow, CompactUnit> units;

    /** full; partition: its values, if only this one is chosen. */
    Clustering(FileStoreTable table, IOManager ioManager, JsonNode command, Map<String, String> partition) {
        this.table = table;
        this.ioManager = ioManager;
        PartitionPredicate chosen = null;
        if (!partition.isEmpty()) {
            String unnamed = table.coreOptions().partitionDefaultName();
            chosen = PartitionPredicate.fromMap(table.schema().logicalPartitionType(), partition, unnamed);
        }
        manager = new IncrementalClusterManager(table, chosen);
        units = manager.createCompactUnits(command.path("full").asBoolean());
    }

    /** The reply holds the files that are due, and the level of those that replace them. */
    void describe(ObjectNode reply) {
        ArrayNode found = reply.putArray("units");
        for (CompactUnit unit : units.values()) {
            ObjectNode entry = found.addObject().put("level", unit.outputLevel());
            ArrayNode files = entry.putArray("files");
            unit.files().forEach(file -> files.add(file.fileName()));
        }
    }

    /** What to commit of the sorted files. */
    List<CommitMessage> messages(long identifier) throws Exception {
        Map<BinaryRow, Pair<List<DataSplit>, CommitMessage>> parts = manager.toSplitsAndRewriteDvFiles(units);
        List<CommitMessage> messages = new ArrayList<>();
        for (Map.Entry<BinaryRow, CompactUnit> unit : units.entrySet()) {
            Pair<List<DataSplit>, CommitMessage> part = parts.get(unit.getKey());
            List<DataFileMeta> sorted = sorted(part.getLeft(), identifier);
            messages.add(new CommitMessageImpl(
                    unit.getKey(), 0, table.coreOptions().bucket(), DataIncrement.emptyIncrement(),
                    new CompactIncrement(
                            unit.getValue().files(),
                            IncrementalClusterManager.upgrade(sorted, unit.getValue().outputLevel()), List.of())));
            if (part.getRight() != null) {
                messages.add(part.getRight());
            }
        }
        return messages;
    }

    private List<DataFileMeta> sorted(List<DataSplit> splits, long identifier) throws Exception {
        FileStoreTable target = table.copyWithoutTimeTravel(Map.of(CoreOptions.WRITE_ONLY.key(), "true"));
        List<DataFileMeta> files = new ArrayList<>();
        try (TableWriteImpl<?> write = target.newWrite("compactor")) {
            write.withIOManager(ioManager);
            RecordReaderIterator<InternalRow> rows =
                    new RecordReaderIterator<>(table.newRead().createReader(new ArrayList<>(splits)));
            if (!rows.hasNext()) {
                // All rows are deleted: the jobs sort nothing then, and the sorter refuses that.
                rows.close();
                return files;
            }
            Sorter sorter = Sorter.getSorter(rows, ioManager, table.rowType(), table.coreOptions());
            MutableObjectIterator<BinaryRow> iterator = sorter.sort();
            BinaryRow row = new BinaryRow(sorter.arity());
            while ((row = iterator.next(row)) != null) {
                write.write(sorter.removeSortKey(row));
            }
            rows.close();
            for (CommitMessage message : write.prepareCommit(true, identifier)) {
                files.addAll(((CommitMessageImpl) message).newFilesIncrement().newFiles());
            }
        }
        return files;
    }
}
