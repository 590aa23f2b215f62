import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS over a directory, of one name node and one data node: prints its address, and ends with its input. */
public final class Hdfs {

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("hdfs.minidfs.basedir", arguments[0]);
        configuration.set("dfs.replication", "1");
        configuration.set("dfs.permissions.enabled", "false");
        MiniDFSCluster cluster =
                new MiniDFSCluster.Builder(configuration).numDataNodes(1).format(true).build();
        cluster.waitActive();
        System.out.println("hdfs://127.0.0.1:" + cluster.getNameNodePort());
        while (System.in.read() >= 0) {
            // Until the input ends.
        }
        Runtime.getRuntime().halt(0);
    }
}
