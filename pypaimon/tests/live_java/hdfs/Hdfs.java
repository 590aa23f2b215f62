import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS over a directory, of one name node and two data nodes: prints its address, and ends with its input. */
public final class Hdfs {

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("hdfs.minidfs.basedir", arguments[0]);
        configuration.set("dfs.replication", "2");
        // Otherwise a client that closes a file before the data nodes have reported its last block waits for 0.5 s.
        // It needs more data nodes than a block must have at least.
        configuration.set("dfs.namenode.file.close.num-committed-allowed", "1");
        configuration.set("dfs.permissions.enabled", "false");
        MiniDFSCluster cluster =
                new MiniDFSCluster.Builder(configuration).numDataNodes(2).format(true).build();
        cluster.waitActive();
        System.out.println("hdfs://127.0.0.1:" + cluster.getNameNodePort());
        while (System.in.read() >= 0) {
            // Until the input ends.
        }
        Runtime.getRuntime().halt(0);
    }
}
