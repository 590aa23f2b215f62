// Licensed under the Apache License, Version 2.0.

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.types.RowKind;

/**
 * Which partition each key of a table lies in whose primary key leaves partition columns out: what Paimon's
 * `GlobalIndexAssigner` decides, without its RocksDB.
 */
final class KeyOwners {
    private final Map<List<Object>, Object[]> partitions = new HashMap<>();

    /** The records to write for a record, each in its partition. */
    List<GenericRow> placed(FileStoreTable table, GenericRow row) {
        int[] partition = table.rowType().getFieldIndices(table.partitionKeys());
        List<Object> key = Arrays.asList(values(row, table.rowType().getFieldIndices(table.primaryKeys())));
        Object[] now = values(row, partition);
        Object[] before = partitions.putIfAbsent(key, now);
        if (before == null || Arrays.equals(before, now)) {
            return List.of(row);
        }
        GenericRow there = GenericRow.ofKind(row.getRowKind(), values(row, all(row.getFieldCount())));
        for (int i = 0; i < partition.length; i++) {
            there.setField(partition[i], before[i]);
        }
        switch (table.coreOptions().mergeEngine()) {
            case DEDUPLICATE -> {
                partitions.put(key, now);
                there.setRowKind(RowKind.DELETE);
                return List.of(there, row);
            }
            case FIRST_ROW -> {
                return List.of();
            }
            default -> {
                return List.of(there);
            }
        }
    }

    private static int[] all(int count) {
        int[] indices = new int[count];
        Arrays.setAll(indices, i -> i);
        return indices;
    }

    private static Object[] values(GenericRow row, int[] indices) {
        return Arrays.stream(indices).mapToObj(row::getField).toArray();
    }
}
