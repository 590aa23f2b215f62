// Licensed under the Apache License, Version 2.0.

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.postpone.BucketFiles;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.DataSplit;

/** What Flink's compaction of a table with postponed buckets does, on one thread: oldest file first. */
final class PostponedBuckets {
    private PostponedBuckets() {}

    /** Distributes the postponed records of each partition over its buckets, and compacts these, all if `full`. */
    static List<CommitMessage> distribute(FileStoreTable table, IOManager ioManager, long identifier, boolean full)
            throws Exception {
        Map<BinaryRow, List<ManifestEntry>> partitions = table.store().newScan().plan().files().stream()
                .collect(Collectors.groupingBy(ManifestEntry::partition, LinkedHashMap::new, Collectors.toList()));
        List<CommitMessage> messages = new ArrayList<>();
        for (Map.Entry<BinaryRow, List<ManifestEntry>> each : partitions.entrySet()) {
            messages.addAll(distribute(table, ioManager, identifier, full, each.getKey(), each.getValue()));
        }
        return messages;
    }

    private static List<CommitMessage> distribute(
            FileStoreTable table, IOManager ioManager, long identifier, boolean full, BinaryRow partition,
            List<ManifestEntry> files) throws Exception {
        Map<Boolean, List<ManifestEntry>> waiting = files.stream()
                .collect(Collectors.partitioningBy(each -> each.bucket() == BucketMode.POSTPONE_BUCKET));
        List<ManifestEntry> real = waiting.get(false);
        // In Java 2 the option has no default.
        int least = Integer.parseInt(table.options().getOrDefault("postpone.default-bucket-num", "1"));
        int buckets = real.isEmpty() ? least : real.get(0).totalBuckets();
        Map<String, String> options = new HashMap<>(table.options());
        options.put("bucket", String.valueOf(buckets));
        options.put("write-only", "false");
        FileStoreTable fixed = table.copy(table.schema().copy(options));
        List<DataFileMeta> postponed = waiting.get(true).stream()
                .map(ManifestEntry::file)
                .sorted(Comparator.comparingLong(DataFileMeta::creationTimeEpochMillis))
                .toList();
        List<CommitMessage> messages = new ArrayList<>();
        try (TableWriteImpl<?> write = fixed.newWrite("compactor")) {
            write.withIOManager(ioManager);
            for (DataFileMeta file : postponed) {
                DataSplit split = DataSplit.builder()
                        .withSnapshot(table.snapshotManager().latestSnapshotId())
                        .withPartition(partition)
                        .withBucket(BucketMode.POSTPONE_BUCKET)
                        .withBucketPath(path(table, partition, BucketMode.POSTPONE_BUCKET))
                        .withDataFiles(List.of(file))
                        .isStreaming(true) // with the kinds of its rows
                        .rawConvertible(false)
                        .build();
                table.newRead().createReader(split).forEachRemaining((InternalRow row) -> {
                    try {
                        write.write(row);
                    } catch (Exception error) {
                        throw new IllegalStateException(error);
                    }
                });
            }
            if (full) {
                for (int bucket = 0; bucket < buckets; bucket++) {
                    write.compact(partition, bucket, true);
                }
            }
            for (CommitMessage written : write.prepareCommit(true, identifier)) {
                CommitMessageImpl message = (CommitMessageImpl) written;
                BucketFiles net = new BucketFiles(
                        table.store().pathFactory().createDataFilePathFactory(partition, message.bucket()),
                        table.fileIO());
                net.update(message);
                CommitMessageImpl made = net.makeMessage(partition, message.bucket());
                messages.add(new CommitMessageImpl(
                        partition, made.bucket(), buckets, made.newFilesIncrement(), made.compactIncrement()));
            }
        }
        if (!postponed.isEmpty()) {
            messages.add(new CommitMessageImpl(
                    partition, BucketMode.POSTPONE_BUCKET, waiting.get(true).get(0).totalBuckets(),
                    DataIncrement.emptyIncrement(), new CompactIncrement(postponed, List.of(), List.of())));
        }
        return messages;
    }

    private static String path(FileStoreTable table, BinaryRow partition, int bucket) {
        return table.store().pathFactory().bucketPath(partition, bucket).toString();
    }
}
