// Licensed under the Apache License, Version 2.0.

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.paimon.Snapshot;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.serializer.InternalRowSerializer;
import org.apache.paimon.deletionvectors.Bitmap64DeletionVector;
import org.apache.paimon.deletionvectors.BitmapDeletionVector;
import org.apache.paimon.deletionvectors.DeletionVector;
import org.apache.paimon.deletionvectors.append.BaseAppendDeleteFileMaintainer;
import org.apache.paimon.index.IndexFileHandler;
import org.apache.paimon.index.IndexFileMeta;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.manifest.FileKind;
import org.apache.paimon.manifest.IndexManifestEntry;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.DeletionFile;

/**
 * Takes rows out of an append table as Spark's DELETE and UPDATE do: by deletion vectors where the table has them, else
 * by copies of the files without these rows.
 */
final class RowChanges {
    private final FileStoreTable table;
    private final Random random;
    private final boolean vectors;
    private final Map<List<Object>, BaseAppendDeleteFileMaintainer> maintainers = new LinkedHashMap<>();
    private final List<CommitMessage> messages = new ArrayList<>();
    private final List<InternalRow> kept = new ArrayList<>();

    /** Rows are chosen by the seed: about one of three, in two of three files. */
    RowChanges(FileStoreTable table, long seed) {
        this.table = table;
        this.random = new Random(seed);
        this.vectors = table.coreOptions().deletionVectorsEnabled();
    }

    /** What to commit; `write` takes the rows that stay of files that are copied. */
    List<CommitMessage> delete(TableWriteImpl<?> write) throws Exception {
        Snapshot latest = table.snapshotManager().latestSnapshot();
        for (DataSplit split : latest == null ? List.<DataSplit>of() : table.newSnapshotReader().read().dataSplits()) {
            List<DeletionFile> deletions = split.deletionFiles().orElse(null);
            for (int i = 0; i < split.dataFiles().size(); i++) {
                DeletionFile deletion = deletions == null ? null : deletions.get(i);
                DeletionVector gone = deletion == null ? null : DeletionVector.read(table.fileIO(), deletion);
                if (random.nextInt(3) > 0) {
                    deleteOf(split, split.dataFiles().get(i), gone, latest);
                }
            }
        }
        for (BaseAppendDeleteFileMaintainer maintainer : maintainers.values()) {
            messages.add(indexFiles(maintainer));
        }
        for (InternalRow row : kept) {
            write.write(row);
        }
        return messages;
    }

    private void deleteOf(DataSplit split, DataFileMeta file, DeletionVector gone, Snapshot latest) throws Exception {
        DeletionVector chosen =
                table.coreOptions().deletionVectorBitmap64() ? new Bitmap64DeletionVector() : new BitmapDeletionVector();
        for (long position = 0; position < file.rowCount(); position++) {
            if (random.nextInt(3) == 0 && (gone == null || !gone.isDeleted(position))) {
                chosen.delete(position);
            }
        }
        if (chosen.isEmpty()) {
            return;
        }
        if (vectors) {
            maintainer(split, latest).notifyNewDeletionVector(file.fileName(), chosen);
            return;
        }
        long[] position = {0};
        InternalRowSerializer serializer = new InternalRowSerializer(table.rowType());
        try (RecordReader<InternalRow> reader = table.newReadBuilder().newRead().createReader(only(split, file))) {
            reader.forEachRemaining(row -> {
                if (!chosen.isDeleted(position[0]++)) {
                    kept.add(serializer.copy(row));
                }
            });
        }
        DataIncrement removed = new DataIncrement(List.of(), List.of(file), List.of());
        messages.add(message(split.partition(), split.bucket(), split.totalBuckets(), removed));
    }

    private static DataSplit only(DataSplit split, DataFileMeta file) {
        return DataSplit.builder()
                .withSnapshot(split.snapshotId())
                .withPartition(split.partition())
                .withBucket(split.bucket())
                .withBucketPath(split.bucketPath())
                .withTotalBuckets(split.totalBuckets())
                .withDataFiles(List.of(file))
                .rawConvertible(true)
                .build();
    }

    private BaseAppendDeleteFileMaintainer maintainer(DataSplit split, Snapshot latest) {
        IndexFileHandler handler = table.store().newIndexFileHandler();
        boolean bucketed = table.bucketMode() != BucketMode.BUCKET_UNAWARE;
        return maintainers.computeIfAbsent(
                List.of(split.partition(), bucketed ? split.bucket() : 0),
                key -> bucketed
                        ? BaseAppendDeleteFileMaintainer.forBucketedAppend(
                                handler, latest, split.partition(), split.bucket())
                        : BaseAppendDeleteFileMaintainer.forUnawareAppend(handler, latest, split.partition()));
    }

    private static CommitMessage indexFiles(BaseAppendDeleteFileMaintainer maintainer) {
        List<IndexFileMeta> added = new ArrayList<>();
        List<IndexFileMeta> deleted = new ArrayList<>();
        for (IndexManifestEntry entry : maintainer.persist()) {
            (entry.kind() == FileKind.ADD ? added : deleted).add(entry.indexFile());
        }
        DataIncrement files = new DataIncrement(List.of(), List.of(), List.of(), added, deleted);
        return message(maintainer.getPartition(), maintainer.getBucket(), null, files);
    }

    private static CommitMessage message(
            BinaryRow partition, int bucket, Integer totalBuckets, DataIncrement files) {
        return new CommitMessageImpl(partition, bucket, totalBuckets, files, CompactIncrement.emptyIncrement());
    }
}
